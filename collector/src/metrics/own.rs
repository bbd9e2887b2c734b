//! The collector's own metrics.

use std::{
    collections::BTreeMap,
    fs,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use xpu_wire::unit::Moment;

use super::{Dump, Exposition, catalogue as all, label, machine};
use crate::follow::Known;

/// Counters of the HTTP server.
#[derive(Debug, Default)]
pub(crate) struct Own {
    answers: Mutex<BTreeMap<u16, u64>>,
    refused: AtomicU64,
    dump: Mutex<Dump>,
}

impl Own {
    /// Counts an answered request by its status.
    pub(crate) fn answered(&self, status: u16) {
        *self.answers.lock().unwrap_or_else(PoisonError::into_inner).entry(status).or_default() += 1;
    }

    /// Counts a connection that was closed without a request.
    pub(crate) fn refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    /// Sets the progress of the last capture.
    pub(crate) fn dumps(&self, dump: Dump) {
        *self.dump.lock().unwrap_or_else(PoisonError::into_inner) = dump;
    }

    pub(super) fn dump(&self) -> Dump {
        *self.dump.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn expose(&self, exposition: &mut Exposition, known: &Known, now: Moment) {
        for (host, collector) in known.jobs().collectors() {
            let labels = [("host", label(host.as_str())), ("version", label(&collector.version))];
            exposition.gauge(all::BUILD, &labels, 1.0);
            exposition.gauge(all::STARTED, &labels[..1], collector.started.0 as f64 / 1e9);
        }
        exposition.counter(all::FRAMES_LOST, &[], known.jobs().lost_frames() as f64);
        exposition.counter(all::FRAMES_MISSED, &[], known.missed() as f64);
        exposition.gauge(all::FOLLOWED, &[], now.since(known.since()).as_secs_f64());
        let tallies =
            || known.jobs().iter().flat_map(|job| job.ranks().map(|(rank, _)| known.tally(job.name(), rank)));
        let folded: usize = tallies().flatten().map(super::Tally::folded).sum();
        exposition.gauge(all::LABELS_FOLDED, &[], folded as f64);
        if known.pages().per_shape {
            let shapes = tallies().flatten().filter_map(super::Tally::shapes);
            exposition.gauge(
                all::SHAPES_LEFT_OUT,
                &[],
                shapes.map(|shapes| shapes.left_out(now)).sum::<u64>() as f64,
            );
        }
        exposition.gauge(all::RANKS_PLAIN, &[], tallies().filter(Option::is_none).count() as f64);
        for (status, count) in &*self.answers.lock().unwrap_or_else(PoisonError::into_inner) {
            exposition.counter(all::HTTP_REQUESTS, &[("code", status.to_string().into())], *count as f64);
        }
        exposition.counter(all::HTTP_REFUSED, &[], self.refused.load(Relaxed) as f64);
        machine::expose(exposition);
        exposition.counter(all::PROCESS_CPU, &[], cpu_seconds());
        exposition.gauge(all::PROCESS_MEMORY, &[], resident_bytes());
        exposition.gauge(
            all::PROCESS_FILES,
            &[],
            fs::read_dir("/proc/self/fd").ok().map(|files| files.count() as f64),
        );
    }
}

/// User and system time of the whole process, including ended threads.
fn cpu_seconds() -> Option<f64> {
    // SAFETY: all zero is a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live rusage.
    let is_known = unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) } == 0;
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    is_known.then(|| seconds(usage.ru_utime) + seconds(usage.ru_stime))
}

fn resident_bytes() -> Option<f64> {
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: f64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    // SAFETY: sysconf has no precondition.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    (size > 0).then_some(pages * size as f64)
}
