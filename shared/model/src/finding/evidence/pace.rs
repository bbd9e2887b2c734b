//! Steps that take longer than before, or occasionally much longer.

use std::fmt;

use xpu_wire::id::Rank;

use super::{
    super::{Clocks, HeldClock},
    Figures, WithFigures,
};
use crate::phrase;

#[derive(Clone, Debug, PartialEq)]
pub struct Regression {
    pub before_ms: f64,
    pub after_ms: f64,
    /// Whether the figure is the mean step time; otherwise it is the median.
    pub is_mean: bool,
    pub since_s: f64,
    /// Increase of FLOPs per step, and decrease of the GEMM rate, in percent. `None` if no GEMM was seen, or
    /// too few were timed.
    pub work_pct: Option<f64>,
    pub rate_pct: Option<f64>,
    /// Whether slower GEMMs are the cause.
    pub is_compute: bool,
    /// If the GEMMs of some ranks became slower and those of the others did not. `rate_pct` is then theirs.
    pub slower: Option<SlowerPart>,
    /// If they are, the reasons for which the clocks of most GPUs are held down.
    pub clocks: Option<HeldClock>,
    pub late: Option<LateLaunches>,
    pub lacks_cpu: Option<LacksCpu>,
}

/// The part of the ranks whose GEMMs became slower.
#[derive(Clone, Debug, PartialEq)]
pub struct SlowerPart {
    /// Empty in a job with too many ranks to examine each.
    pub ranks: Vec<Rank>,
    /// Their share of the examined ranks, in percent.
    pub pct: f64,
}

impl fmt::Display for SlowerPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ranks.is_empty() {
            write!(f, "about {:.0} % of the ranks", self.pct)
        } else {
            f.write_str(&phrase::ranks(&self.ranks))
        }
    }
}

/// Ranks that do not get the CPU time they need. The figures are shares of the time, of the rank that waits
/// longest.
#[derive(Clone, Debug, PartialEq)]
pub struct LacksCpu {
    pub ranks: Vec<Rank>,
    pub waited_pct: f64,
    pub thread: String,
    pub throttled_pct: f64,
    pub stopped_pct: f64,
    /// The share of the other ranks; `None` if most ranks wait equally, or there are no others.
    pub others_pct: Option<f64>,
}

impl LacksCpu {
    /// Advice on the larger reason.
    pub(in crate::finding) fn advice(&self) -> &'static str {
        if self.is_stopped() {
            "find out what stops the process (SIGSTOP): a job scheduler that suspends, a debugger, checkpointing of the process, cgroup.freeze"
        } else if self.throttled_pct > self.waited_pct {
            "raise the CPU limit of the job or container (cpu.max, --cpus-per-task, resources.limits.cpu), or use fewer threads and data loader workers"
        } else {
            "look at what else runs on that host's cores (top, taskset -p), at the job's CPU binding and limits (numactl, cpu.max, --cpus-per-task), and at the number of data loader workers"
        }
    }

    fn is_stopped(&self) -> bool {
        self.stopped_pct == self.share_pct()
    }
}

impl fmt::Display for LacksCpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ranks, waited_pct, thread, throttled_pct, stopped_pct, others_pct } = self;
        let who = phrase::ranks(ranks);
        if self.is_stopped() {
            write!(f, "the process of {who} was stopped (SIGSTOP) {stopped_pct:.0} % of the time")?;
        } else if throttled_pct > waited_pct {
            write!(f, "the CPU quota of {who} held its threads back {throttled_pct:.0} % of the time")?;
        } else {
            let thread = if thread.is_empty() { "a thread" } else { thread };
            write!(
                f,
                "{thread} of {who} was ready to run and had no CPU core {waited_pct:.0} % of the time"
            )?;
        }
        others_pct.map_or(Ok(()), |others| write!(f, " (other ranks: {others:.0} %)"))
    }
}

impl LacksCpu {
    /// The share by the larger reason.
    pub fn share_pct(&self) -> f64 {
        self.waited_pct.max(self.throttled_pct).max(self.stopped_pct)
    }

    pub(super) fn figures(&self, to: &mut Figures) {
        to.put("cpu_wait_pct", self.waited_pct);
        to.put("cpu_throttled_pct", self.throttled_pct);
        to.put("process_stopped_pct", self.stopped_pct);
        to.put("others_cpu_wait_pct", self.others_pct);
    }
}

/// Ranks whose hosts launch too late. The figures are collectives queued during long steps, for their GPUs
/// and for the others'.
#[derive(Clone, Debug, PartialEq)]
pub struct LateLaunches {
    pub ranks: Vec<Rank>,
    pub queued: f64,
    pub others_queued: f64,
}

impl fmt::Display for LateLaunches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ranks, queued, others_queued } = self;
        let (who, verb) = (phrase::ranks(ranks), if ranks.len() == 1 { "launches" } else { "launch" });
        write!(
            f,
            "meanwhile {who} {verb} late: {queued:.0} collectives queued, {others_queued:.0} on the others"
        )
    }
}

impl LateLaunches {
    fn figures(&self, to: &mut Figures) {
        to.put("queued_collectives", self.queued);
        to.put("others_queued_collectives", self.others_queued);
    }
}

/// Figures that differ by less than this percentage are described as equal.
pub(super) const ALIKE: f64 = 3.0;

impl Regression {
    fn longer_pct(&self) -> f64 {
        100.0 * (self.after_ms / self.before_ms - 1.0)
    }

    /// What became of the GEMM rate if it is not the cause.
    pub(super) fn rate(&self) -> String {
        match self.rate_pct {
            None => "the TFLOPS of GEMMs are unknown".to_owned(),
            Some(less) if less.abs() < ALIKE => "GEMMs run at the same TFLOPS".to_owned(),
            Some(less) => {
                format!(
                    "GEMMs run at {:.0} % {} TFLOPS",
                    less.abs(),
                    if less > 0.0 { "fewer" } else { "more" }
                )
            }
        }
    }
}

impl fmt::Display for Regression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { before_ms, after_ms, since_s, work_pct, rate_pct, .. } = self;
        let mean = if self.is_mean { " on average, some much longer," } else { "" };
        let longer = self.longer_pct();
        write!(
            f,
            "steps have taken {after_ms:.1} ms{mean} for {since_s:.0} s, {longer:.0} % more than the "
        )?;
        write!(f, "{before_ms:.1} ms before, with ")?;
        match work_pct {
            None => f.write_str("unknown")?,
            Some(more) if more.abs() < ALIKE => f.write_str("the same")?,
            Some(more) => write!(f, "{more:+.0} %")?,
        }
        f.write_str(" FLOPs")?;
        if self.is_compute {
            write!(f, "; GEMMs run at {:.0} % fewer TFLOPS on ", rate_pct.unwrap_or(f64::NAN))?;
            match &self.slower {
                Some(part) => write!(f, "{part}, and as before on the others")?,
                None => f.write_str("all ranks")?,
            }
            if let Some(HeldClock { mhz, usual_mhz, reasons, temperature_c }) = &self.clocks {
                write!(f, ", SM clocks at {mhz:.0} MHz of {usual_mhz:.0}, held down: {reasons}")?;
                temperature_c.map_or(Ok(()), |degrees| write!(f, ", {degrees} °C"))?;
            }
        } else {
            write!(f, "; {}", self.rate())?;
        }
        self.late.as_ref().map_or(Ok(()), |late| write!(f, "; {late}"))?;
        self.lacks_cpu.as_ref().map_or(Ok(()), |lacks| write!(f, "; {lacks}"))
    }
}

impl WithFigures for Regression {
    fn figures(&self, to: &mut Figures) {
        to.put("step_ms", self.after_ms);
        to.put("before_step_ms", self.before_ms);
        to.put("longer_pct", self.longer_pct());
        to.put("more_work_pct", self.work_pct);
        to.put("slower_gemms_pct", self.rate_pct);
        to.put("slower_ranks_pct", self.slower.as_ref().map(|part| part.pct));
        if let Some(held) = &self.clocks {
            Clocks::Held(held.clone()).figures(to);
        }
        if let Some(late) = &self.late {
            late.figures(to);
        }
        if let Some(lacks) = &self.lacks_cpu {
            lacks.figures(to);
        }
    }
}

/// Steps that take longer than in an earlier run.
#[derive(Clone, Debug, PartialEq)]
pub struct PastRun {
    pub step_ms: f64,
    pub past_step_ms: f64,
    /// The day and GPUs of that run; the time since which steps take longer, in words; and the cause.
    pub day: String,
    pub gpu: String,
    pub when: String,
    pub why: String,
}

impl PastRun {
    fn longer_pct(&self) -> f64 {
        100.0 * (self.step_ms / self.past_step_ms - 1.0)
    }
}

impl fmt::Display for PastRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step_ms, past_step_ms, day, gpu, when, why } = self;
        let longer = self.longer_pct();
        write!(
            f,
            "steps take {step_ms:.1} ms, {longer:.0} % more than the {past_step_ms:.1} ms of the run of "
        )?;
        write!(f, "{day}{gpu}, {when}; {why}")
    }
}

impl WithFigures for PastRun {
    fn figures(&self, to: &mut Figures) {
        to.put("step_ms", self.step_ms);
        to.put("past_step_ms", self.past_step_ms);
        to.put("longer_pct", self.longer_pct());
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Pauses {
    /// Ranks whose threads waited much less than the others'; none if no such rank exists.
    pub ranks: Vec<Rank>,
    pub lost_pct: f64,
    pub window_s: f64,
    pub pauses: f64,
    pub late: Option<LateLaunches>,
}

impl fmt::Display for Pauses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ranks, lost_pct, window_s, pauses, late } = self;
        write!(
            f,
            "{lost_pct:.0} % of the last {window_s:.0} s were lost in single long steps, {pauses:.0} of them; "
        )?;
        if let Some(late) = late {
            return write!(f, "{late}");
        }
        match &ranks[..] {
            [] => f.write_str("no single rank causes them"),
            ranks => {
                write!(f, "{} waited for the GPU less than the others by the same time", phrase::ranks(ranks))
            }
        }
    }
}

impl WithFigures for Pauses {
    fn figures(&self, to: &mut Figures) {
        to.put("lost_pct", self.lost_pct);
        to.put("window_s", self.window_s);
        to.put("pauses", self.pauses);
        if let Some(late) = &self.late {
            late.figures(to);
        }
    }
}
