//! The share of its time for which a rank waited for the CPU.

use std::{collections::VecDeque, ops::Add as _, time::Duration};

use xpu_wire::{
    frame::RankCpu,
    unit::{Moment, Nanoseconds},
};

use super::{intervals::WINDOW, push_bounded};

/// Number of reports kept. A second is reported only while a rank waits for the CPU.
const REMEMBERED: usize = WINDOW;

/// Shares of the time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CpuWait {
    /// A thread was ready to run without a core: the thread that waited longest, and its name.
    pub waited: f64,
    pub thread: String,
    /// The control group was held back by its CPU quota.
    pub throttled: f64,
    /// The process was stopped.
    pub stopped: f64,
}

impl CpuWait {
    /// The share by the larger reason.
    pub fn share(&self) -> f64 {
        self.waited.max(self.throttled).max(self.stopped).min(1.0)
    }
}

#[derive(Debug, Default)]
pub(super) struct CpuWaits(VecDeque<(Moment, RankCpu)>);

impl CpuWaits {
    /// Takes the report of the moment `at`, but only once.
    pub(super) fn take(&mut self, cpu: &RankCpu, at: Moment) {
        if self.0.back().is_none_or(|(last, _)| *last < at) {
            push_bounded(&mut self.0, (at, cpu.clone()), REMEMBERED);
        }
    }

    /// The wait over the last `length` before `now`.
    pub(super) fn over(&self, length: Duration, now: Moment) -> CpuWait {
        let within: Vec<&RankCpu> =
            self.0.iter().filter(|(at, _)| now.since(*at) < length).map(|(_, cpu)| cpu).collect();
        let share = |of: &dyn Fn(&RankCpu) -> Nanoseconds| {
            // The sum of no values is -0.
            let sum = within.iter().map(|cpu| of(cpu).seconds()).fold(0.0, f64::add);
            (sum / length.as_secs_f64().max(1.0)).min(1.0)
        };
        let longest = within.iter().max_by_key(|cpu| cpu.waited);
        CpuWait {
            waited: share(&|cpu| cpu.waited.min(cpu.interval)),
            thread: longest.map(|cpu| cpu.thread.clone()).unwrap_or_default(),
            throttled: share(&|cpu| cpu.throttled.unwrap_or_default().min(cpu.interval)),
            stopped: share(&|cpu| if cpu.stopped { cpu.interval } else { Nanoseconds(0) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use xpu_wire::id::{Pid, Rank};

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn cpu(waited: u64, stopped: bool) -> RankCpu {
        let (interval, waited) = (Nanoseconds(SECOND), Nanoseconds(waited));
        let thread = format!("t{}", waited.0);
        RankCpu { rank: Rank(1), pid: Pid(7), interval, waited, thread, throttled: None, stopped }
    }

    /// Seconds without a report are seconds without waiting.
    #[test]
    fn the_wait_for_a_cpu_is_a_share_of_all_seconds() {
        let mut waits = CpuWaits::default();
        for (at, waited, stopped) in
            [(100, SECOND, false), (109, SECOND / 2, true), (109, 1, true), (110, SECOND, false)]
        {
            waits.take(&cpu(waited, stopped), Moment(at * SECOND));
        }
        let found = waits.over(Duration::from_secs(10), Moment(111 * SECOND));
        assert_eq!((found.waited, found.stopped, &found.thread[..]), (0.15, 0.1, "t1000000000"));
        let none = waits.over(Duration::from_secs(10), Moment(200 * SECOND));
        assert_eq!(none, CpuWait::default());
        assert_eq!(format!("{:.0}", none.waited), "0");
    }
}
