//! Other processes on the GPU of a rank.

use std::fmt;

use serde::{Serialize, Serializer, ser::SerializeSeq as _};
use xpu_wire::{frame::GpuProcess, id::Rank};

use crate::{figure, job::RankView};

/// Largest difference between the begin of a change and that of its cause: some seconds, and half of its age,
/// to which the begin of longer steps is known.
const TOGETHER_S: f64 = 10.0;
const TOGETHER: f64 = 0.5;

/// The other processes on the GPU of this rank, the busiest first; at least one.
#[derive(Clone, Debug, PartialEq)]
pub struct Neighbours {
    pub rank: Rank,
    first: GpuProcess,
    more: Vec<GpuProcess>,
}

impl Neighbours {
    /// `None` if no other process uses its GPU.
    pub(in crate::finding) fn of(rank: Rank, view: &RankView) -> Option<Self> {
        let (first, more) = view.neighbours().split_first()?;
        Some(Self { rank, first: first.clone(), more: more.to_vec() })
    }

    /// The same, for a change that began this many seconds ago: `None` if no process that keeps its GPU busy came at
    /// the same time. Such a process comes first.
    pub(in crate::finding) fn since(rank: Rank, view: &RankView, since_s: f64) -> Option<Self> {
        let came_then = |process: &GpuProcess| {
            let ago = view.last_report().since(process.since).as_secs_f64();
            let is_busy = process.busy.is_none_or(|busy| busy > 0);
            is_busy && (ago - since_s).abs() < TOGETHER_S + TOGETHER * since_s
        };
        let mut all = view.neighbours().to_vec();
        let first = all.iter().position(came_then).map(|at| all.remove(at))?;
        Some(Self { rank, first, more: all })
    }

    /// `process 4242 (python3)`, `process 4242 (python3) and 2 more`
    fn who(&self) -> String {
        let GpuProcess { pid, name, .. } = &self.first;
        let name = if name.is_empty() { String::new() } else { format!(" ({name})") };
        let more = match self.more.len() {
            0 => String::new(),
            more => format!(" and {} more", figure::count(more as u64)),
        };
        format!("process {pid}{name}{more}")
    }

    /// `shares its GPU with process 4242 (python3)`, about the rank, in a headline.
    pub(super) fn shares(&self) -> String {
        format!("shares its GPU with {}", self.who())
    }

    pub(in crate::finding) fn advice(&self) -> String {
        format!(
            "end {}, or move it to another GPU: time slices of a GPU alternate between processes",
            self.who()
        )
    }
}

/// `process 4242 (python3) uses the GPU of rank 1 too, for 48 % of the time`
impl fmt::Display for Neighbours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.more.is_empty() { "uses" } else { "use" };
        write!(f, "{} {verb} the GPU of rank {} too", self.who(), self.rank)?;
        let busy = || [&self.first].into_iter().chain(&self.more).filter_map(|process| process.busy);
        let sum: u32 = busy().map(u32::from).sum();
        if busy().next().is_some() { write!(f, ", for {} % of the time", sum.min(100)) } else { Ok(()) }
    }
}

impl Serialize for Neighbours {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Process<'a> {
            pid: u32,
            name: &'a str,
            busy_pct: Option<u8>,
            memory_bytes: Option<u64>,
        }
        let mut list = serializer.serialize_seq(Some(1 + self.more.len()))?;
        for GpuProcess { pid, name, busy, memory, .. } in [&self.first].into_iter().chain(&self.more) {
            list.serialize_element(&Process { pid: pid.0, name, busy_pct: *busy, memory_bytes: *memory })?;
        }
        list.end()
    }
}

#[cfg(test)]
mod tests {
    use xpu_wire::{id::Pid, unit::Moment};

    use super::*;
    use crate::finding::evidence::{
        Evidence,
        cost::{Cause, Straggler},
    };

    #[test]
    fn other_processes_on_the_gpu_are_reported_once() {
        let straggler = Straggler {
            rank: Rank(5),
            host: "a".into(),
            pct: 18.0,
            error_pct: 0.0,
            step_ms: Some(120.0),
            timed: 130,
            last: 128,
            tflops: None,
            cause: Cause::SharedGpu,
            explained_pct: None,
        };
        let first = GpuProcess {
            pid: Pid(4242),
            name: "python3".into(),
            busy: Some(48),
            memory: None,
            since: Moment(0),
        };
        let neighbours = Neighbours { rank: Rank(5), first, more: Vec::new() };
        assert_eq!(
            Evidence::Shared(Box::new(Evidence::Straggler(straggler)), neighbours).to_string(),
            "rank 5 (a) delays the others by 21.6 ms of a 120.0 ms step: they wait for it alone at 128 of 130 timed \
             collectives; process 4242 (python3) uses the GPU of rank 5 too, for 48 % of the time"
        );
    }
}
