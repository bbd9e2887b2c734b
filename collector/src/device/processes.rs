//! The processes that use a GPU, by the driver's library.

use std::{collections::BTreeMap, time::Duration};

use nvml_wrapper::{Device, enums::device::UsedGpuMemory, error::NvmlError};
use xpu_wire::{frame::GpuProcess, id::Pid, unit::Moment};

/// Processes of one GPU that are reported.
const MOST: usize = 16;

/// A process that did nothing for this long begins again.
const PAUSE: Duration = Duration::from_secs(30);

/// What was read last.
#[derive(Debug, Default)]
pub(super) struct Processes {
    /// The time of the newest sample of their activity, in microseconds by the driver's clock.
    newest: Option<u64>,
    /// When each process was first and last seen taking time.
    seen: BTreeMap<Pid, (Moment, Moment)>,
}

impl Processes {
    /// The processes that use the GPU now, without their names. A process without a sample since the last reading
    /// did nothing.
    pub(super) fn read(&mut self, device: &Device<'_>, now: Moment) -> Vec<GpuProcess> {
        let running = device.running_compute_processes().unwrap_or_default();
        // One is the usual case, and its activity is that of the GPU.
        if running.len() < 2 {
            self.seen.clear();
            return Vec::new();
        }
        let samples = match device.process_utilization_stats(self.newest) {
            // No process did anything since the last reading.
            Err(NvmlError::NotFound) => Some(Vec::new()),
            read => read.ok(),
        };
        let mut busy: BTreeMap<u32, (u64, u32)> = BTreeMap::new();
        for sample in samples.iter().flatten() {
            let known = busy.entry(sample.pid).or_default();
            *known = (*known).max((sample.timestamp, sample.sm_util));
        }
        self.newest = busy.values().map(|&(at, _)| at).max().or(self.newest);
        let process = |pid: u32, memory: &UsedGpuMemory| GpuProcess {
            pid: Pid(pid),
            name: String::new(),
            busy: samples.is_some().then(|| busy.get(&pid).map_or(0, |&(_, share)| share.min(100) as u8)),
            memory: match memory {
                UsedGpuMemory::Used(bytes) => Some(*bytes),
                UsedGpuMemory::Unavailable => None,
            },
            since: now,
        };
        let mut found: Vec<_> =
            running.iter().take(MOST).map(|one| process(one.pid, &one.used_gpu_memory)).collect();
        self.seen.retain(|_, (_, last)| now.since(*last) < PAUSE);
        for process in &mut found {
            if process.is_notable() {
                self.seen.entry(process.pid).or_insert((now, now)).1 = now;
            }
            process.since = self.seen.get(&process.pid).map_or(now, |(first, _)| *first);
        }
        found
    }
}
