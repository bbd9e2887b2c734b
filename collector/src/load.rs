//! Measures what this host, the ranks' processes and their GPUs move and compute per second, from the
//! kernel's counters and NVML.

mod host;
mod process;

use std::collections::BTreeMap;

use xpu_wire::{
    frame::{GpuLoad, HostLoad, RankLoad},
    id::{JobName, Pid, Rank},
    unit::{Moment, Nanoseconds},
};

use host::HostCounts;
use process::{ProcessCounts, Processes};

/// The counters at the previous reading.
#[derive(Debug, Default)]
pub(crate) struct Loads {
    before: Option<(Moment, HostCounts)>,
    processes: Processes,
    /// The last readings, for a viewer that connects now.
    latest: Vec<HostLoad>,
}

/// A rank whose load is read.
pub(crate) struct Loaded {
    pub(crate) job: JobName,
    pub(crate) rank: Rank,
    pub(crate) pid: Pid,
    pub(crate) gpu: Option<GpuLoad>,
}

impl Loads {
    /// One load for each job with a rank here. None at the first reading.
    pub(crate) fn read(&mut self, ranks: impl Iterator<Item = Loaded>, now: Moment) -> Vec<HostLoad> {
        let mut ranks = ranks.peekable();
        if ranks.peek().is_none() {
            // Without ranks there are no readings, so the next difference would cover too long a time.
            *self = Self::default();
            return Vec::new();
        }
        let counts = HostCounts::read();
        let before = self.before.replace((now, counts.clone()));
        let Some((at, before)) = before.filter(|(at, _)| *at < now) else {
            for one in ranks {
                self.processes.difference(one.pid, now);
            }
            return Vec::new();
        };
        let (interval, host) = (Nanoseconds::from(now.since(at)), counts.since(&before));
        let mut loads: BTreeMap<JobName, HostLoad> = BTreeMap::new();
        for Loaded { job, rank, pid, gpu } in ranks {
            let ProcessCounts { processes, cpu, disk } = self.processes.difference(pid, now);
            let load = loads.entry(job.clone()).or_insert_with(|| HostLoad {
                job,
                interval,
                host,
                ranks: Vec::new(),
            });
            load.ranks.push(RankLoad { rank, pid, processes, cpu, disk, gpu });
        }
        self.processes.forget(now);
        self.latest = loads.into_values().collect();
        self.latest.clone()
    }

    pub(crate) fn latest(&self) -> &[HostLoad] {
        &self.latest
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// A process that computes and writes, and its child process that also computes.
    #[test]
    fn load_of_a_rank_of_its_workers_and_of_the_host_is_measured() {
        let script = "
import os, sys, tempfile
worker = os.fork()
with tempfile.NamedTemporaryFile(dir=sys.argv[1]) as file:
    while True:
        if worker:
            file.seek(0)
            file.write(bytes(1 << 20))
            file.flush()
            os.fsync(file.fileno())
";
        let mut command = std::process::Command::new("python3");
        // The file is in the folder of this program: /tmp may be in memory, and then no disk is written.
        let here = std::env::current_exe().unwrap();
        let folder = tempfile::tempdir_in(here.parent().unwrap()).unwrap();
        let mut child = command.args(["-c", script]).arg(folder.path()).spawn().unwrap();
        let pid = Pid(child.id());
        let (mut loads, until) = (Loads::default(), Instant::now() + Duration::from_secs(30));
        let rank = || Loaded { job: "j".into(), rank: Rank(3), pid, gpu: None };
        let is_seen = |load: &HostLoad| {
            let [one] = &load.ranks[..] else { return false };
            let cores = one.cpu.unwrap().seconds() / load.interval.seconds();
            let host = load.host.busy(load.interval).unwrap() * f64::from(load.host.cores);
            // The counters of the host and of the processes advance in ticks of 10 ms.
            one.processes == 2 && cores > 0.2 && host > cores * 0.7 && one.disk.sent > Some(1 << 20)
        };
        let mut seen = Vec::new();
        while Instant::now() < until && !seen.last().is_some_and(is_seen) {
            std::thread::sleep(Duration::from_millis(300));
            seen.extend(loads.read(std::iter::once(rank()), Moment::now()));
        }
        for process in process::tree(pid) {
            let _ = std::process::Command::new("kill").args(["-KILL", &process.to_string()]).status();
        }
        child.wait().unwrap();
        assert!(seen.last().is_some_and(is_seen), "{seen:#?}");
        assert!(loads.read(std::iter::empty(), Moment::now()).is_empty());
    }
}
