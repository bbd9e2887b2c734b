//! The results so far, and the measurements in progress. They can be read even while a GPU does not answer.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use xpu_analysis::qualify::{Figure, Gpu, Host};

/// The shared results: the measuring threads write them, and the waiting thread reads them.
#[derive(Debug)]
pub(super) struct Board {
    host: Mutex<Host>,
    begun: Instant,
}

/// Time limit per GPU. Measurements that have not begun by then are left out; those that have not ended count
/// as failures.
const LIMIT: Duration = Duration::from_mins(1);

impl Board {
    pub(super) fn new(host: Host, begun: Instant) -> Self {
        Self { host: Mutex::new(host), begun }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Host> {
        // Holders of the lock only add results, so the board stays valid after a panic.
        self.host.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The deadline of all measurements.
    pub(super) fn deadline(&self) -> Instant {
        let gpus = self.lock().gpus.len().max(1) as u32;
        self.begun + LIMIT * gpus
    }

    /// Runs a measurement of one GPU, and notes its start and end. The measurement is left out if the time is
    /// up.
    pub(super) fn gpu(
        &self,
        place: usize,
        what: &str,
        measure: impl FnOnce() -> Result<Option<Figure>, String>,
    ) {
        let late = Instant::now() >= self.deadline();
        if late {
            return self
                .edit(place, |gpu| gpu.not_measured.push(format!("{what}: the time limit was reached")));
        }
        self.edit(place, |gpu| gpu.doing = Some(what.to_owned()));
        let outcome = measure();
        self.edit(place, |gpu| {
            gpu.doing = None;
            match outcome {
                Ok(figure) => gpu.figures.extend(figure),
                Err(why) if is_missing(&why) => gpu.not_measured.push(format!("{what}: {why}")),
                Err(why) => gpu.errors.push(format!("{what}: {why}")),
            }
        });
    }

    /// Runs a measurement of all GPUs together, in the same way.
    pub(super) fn host(&self, what: &str, measure: impl FnOnce() -> Result<(), String>) {
        if Instant::now() >= self.deadline() {
            self.lock().not_measured.push(format!("{what}: the time limit was reached"));
            return;
        }
        self.lock().doing = Some(what.to_owned());
        let outcome = measure();
        let mut host = self.lock();
        host.doing = None;
        if let Err(why) = outcome {
            host.errors.push(format!("{what}: {why}"));
        }
    }

    pub(super) fn edit(&self, place: usize, edit: impl FnOnce(&mut Gpu)) {
        if let Some(gpu) = self.lock().gpus.get_mut(place) {
            edit(gpu);
        }
    }

    /// The results at the end, or when the time is up; a measurement that has not returned is an error.
    pub(super) fn close(&self) -> Host {
        let mut host = self.lock();
        host.seconds = self.begun.elapsed().as_secs_f64();
        for gpu in &mut host.gpus {
            let open = gpu.doing.take();
            gpu.errors.extend(open.map(|what| format!("{what}: no answer from the GPU")));
        }
        let open = host.doing.take();
        host.errors.extend(open.map(|what| format!("{what}: no answer")));
        host.clone()
    }
}

/// Whether the GPU or the library lacks this function, which is no failure.
fn is_missing(why: &str) -> bool {
    ["NOT_SUPPORTED", "ARCH_MISMATCH"].iter().any(|status| why.contains(status))
}
