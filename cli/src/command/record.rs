//! `xpu-top record`: writes all collectors' frames to a file, until it is stopped.

use std::{fs, path::Path, process::ExitCode, time::Duration};

use anyhow::Context as _;
use tokio::{
    select,
    signal::unix::{SignalKind, signal},
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};
use xpu_client::{
    arrival::Arrival,
    follow::Following,
    inquiry::Inquiry,
    live::{self, Live},
    new_file,
    recording_writer::{RecordingWriter, Seen, header},
};
use xpu_model::{figure, finding, status::ExitCode as Code};
use xpu_recording::{Header, Totals};
use xpu_wire::{frame::Body, unit::Moment};

use super::{hang_up::HangUp, living::report_unreachable};
use crate::args::{RecordArgs, UsageError};

/// Interval of checks whether a block is old enough to be written.
const LOOK: Duration = Duration::from_millis(100);

/// Hosts without an answer for this long are reported.
const PATIENCE: Duration = Duration::from_secs(5);

/// Interval of checks whether the job hangs, in which case its stacks are recorded too.
const EXAMINE: Duration = Duration::from_secs(1);

pub fn record(args: &RecordArgs) -> anyhow::Result<ExitCode> {
    let hosts = args.of.hosts()?;
    let key = args.of.connection.key()?;
    hosts.warnings.iter().for_each(|warning| eprintln!("xpu-top: {warning}"));
    let header = header(args.of.job.as_ref(), &hosts.endpoints);
    let path = &args.output;
    let mut recording = begin(path, &header)?;
    let failed = || format!("cannot record to {}", path.display());
    let mut following = Following::new(hosts.endpoints.iter().cloned(), args.of.job.clone());
    let (live, mut arrivals) = live::connect(hosts.endpoints, key, args.of.job.clone());
    live.watch_all(!args.no_details);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (mut interrupt, mut terminate, mut hang_up) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, HangUp::install()?);
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let began = Instant::now();
        let end = args.length.map(|length| began + length);
        let (mut complained, mut examined, mut inquiry) = (false, began, Inquiry::default());
        loop {
            select! {
                arrival = arrivals.recv() => {
                    let arrival = arrival.context("the connection to the collectors ended")?;
                    if let Arrival::Frame(frame) = &arrival {
                        recording.take(frame).with_context(failed)?;
                    }
                    // Only a replay needs details; here they would waste memory.
                    if !matches!(&arrival, Arrival::Frame(frame) if matches!(frame.body, Body::Detail(_))) {
                        following.take(arrival);
                    }
                }
                _ = look.tick() => {
                    let due = recording.packer.due(Moment::now());
                    due.and_then(|blocks| recording.write(blocks)).with_context(failed)?;
                    if examined.elapsed() >= EXAMINE {
                        examined = Instant::now();
                        ask_stacks(&following, &mut inquiry, &live);
                    }
                    if !complained && began.elapsed() >= PATIENCE {
                        complained = true;
                        report_unreachable(&following, "");
                    }
                }
                () = sleep_until(end.unwrap_or(began)), if end.is_some() => break,
                _ = interrupt.recv() => break,
                _ = terminate.recv() => break,
                () = hang_up.received() => break,
            }
        }
        anyhow::Ok(())
    })?;
    let (totals, seen) = recording.close().with_context(failed)?;
    if totals.frames == 0 {
        // The next attempt may use its name.
        let _ = fs::remove_file(path);
        report_unreachable(&following, "");
        eprintln!("xpu-top: no host reported: nothing was recorded to {}", path.display());
        return Ok(ExitCode::from(Code::NoData as u8));
    }
    eprintln!("{}", summary(path, &totals, &seen, following.jobs().lost_frames()));
    Ok(ExitCode::SUCCESS)
}

fn ask_stacks(following: &Following, inquiry: &mut Inquiry, live: &Live) {
    let Some(job) = following.job() else { return };
    let now = Moment::now();
    let ranks = inquiry.due(job, &finding::examine(job, now), now);
    if !ranks.is_empty() {
        live.records(job.name().clone(), ranks.clone());
        live.kept_stacks(job.name().clone(), ranks);
    }
}

/// Begins a recording in a new file.
fn begin(path: &Path, header: &Header) -> Result<RecordingWriter, UsageError> {
    RecordingWriter::begin(path, header).map_err(|error| {
        UsageError::Value(format!("cannot record to {}: {}", path.display(), new_file::why_not(&error)))
    })
}

/// `night.xpurec: 12.4 MiB, 4,321 frames of 8 ranks on 2 hosts in 600 s (26 B a rank and second, 9 times compressed); no frame lost`
fn summary(path: &Path, totals: &Totals, seen: &Seen, lost: u64) -> String {
    let length = totals.first.map_or(Duration::ZERO, |first| totals.last.since(first));
    let ranks = seen.ranks.len();
    let each = totals.bytes as f64 / length.as_secs_f64().max(1.0) / ranks.max(1) as f64;
    format!(
        "{}: {}, {} of {} on {} in {:.0} s ({} a rank and second, compressed {:.1} times); {}",
        path.display(),
        figure::bytes(totals.bytes),
        figure::counted(totals.frames as usize, "frame", "frames"),
        figure::counted(ranks, "rank", "ranks"),
        figure::counted(seen.hosts.len(), "host", "hosts"),
        length.as_secs_f64(),
        figure::bytes(each as u64),
        totals.raw as f64 / totals.bytes.max(1) as f64,
        match lost {
            0 => "no frame was lost".to_owned(),
            lost => format!("{} lost in transit", figure::counted(lost as usize, "frame was", "frames were")),
        },
    )
}
