//! A rank that costs the others time, and the cause.

use std::fmt;

use xpu_wire::id::{HostName, Rank};

use super::{
    super::{Class, device::Clocks},
    Figures, WithFigures,
    pace::LacksCpu,
};
use crate::{figure, job::HostShares};

/// Advice for a rank whose host launches too late.
pub(in crate::finding) const LATE_HOST: &str = "look at what its Python does between launches (xpu-top stacks): data loader, checkpoint, garbage collection, a thread that holds the GIL, a busy CPU";

#[derive(Clone, Debug, PartialEq)]
pub struct Straggler {
    pub rank: Rank,
    pub host: HostName,
    /// Share of the time that the others lose because of it, and half the width of its interval, in percent.
    pub pct: f64,
    pub error_pct: f64,
    pub step_ms: Option<f64>,
    /// Number of timed collectives, and of those at which the others waited for it alone.
    pub timed: u32,
    pub last: u32,
    /// Its GEMM rate, and the others'.
    pub tflops: Option<(f64, f64)>,
    pub cause: Cause,
    /// Share of the cost for which the cause accounts, in percent; `None` if that is unknown.
    pub explained_pct: Option<f64>,
}

impl Straggler {
    /// Percent of the cost that is reported as unexplained; less is within the error of the estimates.
    const UNEXPLAINED: f64 = 20.0;

    /// `that explains 60 % of the delay, the rest is unexplained`; `None` if it explains most of it.
    pub(super) fn rest(&self) -> Option<String> {
        let explained = self.explained_pct.filter(|explained| 100.0 - explained > Self::UNEXPLAINED)?;
        Some(format!("that explains {explained:.0} % of the delay, the rest is unexplained"))
    }
}

/// The cause of most of the cost.
#[derive(Clone, Debug, PartialEq)]
pub enum Cause {
    /// Its GEMMs are slower than the others', or than before.
    SlowGemms {
        tflops: f64,
        usual_tflops: f64,
        is_past: bool,
        clocks: Clocks,
    },
    /// It does this multiple of the others' FLOPs.
    MoreWork {
        times: f64,
    },
    /// Its threads wait less for the GPU than the others' threads: shares of the time, in percent.
    WaitsLess {
        pct: f64,
        usual_pct: f64,
    },
    /// It does not get the CPU time it needs.
    LacksCpu(LacksCpu),
    /// Its threads wait for the GPU more often in a step.
    MoreWaits {
        per_step: f64,
        usual_per_step: f64,
    },
    /// Its host does this for longer than the others' hosts: shares of the time, in percent.
    HostWork {
        work: HostWork,
        pct: f64,
        usual_pct: f64,
    },
    /// Other processes use its GPU.
    SharedGpu,
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostWork {
    DataLoading,
    GarbageCollection,
    /// Copies that are not asynchronous.
    Copies,
}

impl HostWork {
    pub(in crate::finding) const ALL: [Self; 3] = [Self::DataLoading, Self::GarbageCollection, Self::Copies];

    pub(in crate::finding) fn share(self, of: HostShares) -> Option<f64> {
        match self {
            Self::DataLoading => of.loading,
            Self::GarbageCollection => of.collecting,
            Self::Copies => of.copying,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::DataLoading => "waits for its data loader",
            Self::GarbageCollection => "garbage collection",
            Self::Copies => "waits for copies",
        }
    }

    /// The subject of a sentence, with its verb.
    fn phrase(self) -> &'static str {
        match self {
            Self::DataLoading => "waiting for its data loader takes",
            Self::GarbageCollection => "Python's garbage collections take",
            Self::Copies => "copies that its host waits for take",
        }
    }

    fn figure(self) -> (&'static str, &'static str) {
        match self {
            Self::DataLoading => ("data_loading_pct", "usual_data_loading_pct"),
            Self::GarbageCollection => ("garbage_collection_pct", "usual_garbage_collection_pct"),
            Self::Copies => ("copies_pct", "usual_copies_pct"),
        }
    }

    fn advice(self) -> &'static str {
        match self {
            Self::DataLoading => {
                "look at its data loader: too few workers, a slow file system, larger samples (xpu-top stacks)"
            }
            Self::GarbageCollection => {
                "call gc.freeze() after the model is made, and gc.collect() rarely and in the same step on all ranks"
            }
            Self::Copies => {
                "copy less, or from pinned memory with non_blocking=True (xpu-top capture --steps 5 --kernels shows the copies)"
            }
        }
    }
}

impl Cause {
    pub fn class(&self) -> Class {
        match self {
            Self::SlowGemms { clocks: Clocks::Held(_), .. } => Class::Clocks,
            Self::SlowGemms { .. } | Self::MoreWork { .. } | Self::SharedGpu => Class::Compute,
            Self::WaitsLess { .. } | Self::MoreWaits { .. } | Self::LacksCpu(_) | Self::HostWork { .. } => {
                Class::Host
            }
            Self::Unknown => Class::Step,
        }
    }

    pub fn advice(&self) -> &'static str {
        match self {
            Self::SlowGemms { clocks, .. } => clocks.advice(),
            Self::MoreWork { .. } => {
                "look for work that the others do not have: longer sequences, a larger batch, an extra module or evaluation"
            }
            Self::WaitsLess { .. } => LATE_HOST,
            Self::LacksCpu(lacks) => lacks.advice(),
            Self::MoreWaits { .. } => {
                "look for code that waits for the GPU within the step: .item(), .cpu(), a tensor that is printed or compared (xpu-top stacks)"
            }
            Self::HostWork { work, .. } => work.advice(),
            Self::SharedGpu => "end the other processes on its GPU, or move them to another one",
            Self::Unknown => {
                "capture some steps (xpu-top capture --steps 5 --kernels) and look at what this rank does before its collectives: copies, kernels other than GEMMs, its host"
            }
        }
    }
}

impl fmt::Display for Straggler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, host, pct, error_pct, .. } = self;
        write!(f, "rank {rank} ({host}) delays the others by ")?;
        // A cost computed from the job's step times may be known exactly to the digit.
        let of = |whole: f64| {
            let [least, most] = [(pct - error_pct).max(0.0), pct + error_pct]
                .map(|bound| format!("{:.1}", bound * whole / 100.0));
            if least == most { String::new() } else { format!(" ({least} to {most})") }
        };
        match self.step_ms {
            Some(step) => write!(f, "{:.1} ms of a {step:.1} ms step{}", pct * step / 100.0, of(step))?,
            None => write!(f, "{pct:.0} % of the time{}", of(100.0))?,
        }
        write!(
            f,
            ": they wait for it alone at {} of {} timed collectives",
            figure::count(self.last.into()),
            figure::count(self.timed.into()),
        )?;
        match &self.cause {
            Cause::SlowGemms { tflops, usual_tflops, is_past, clocks } => {
                let less = 100.0 * (1.0 - tflops / usual_tflops);
                let whose = if *is_past { "its own earlier" } else { "the others'" };
                write!(
                    f,
                    "; its GEMMs run at {tflops:.1} TFLOPS, {less:.0} % below {whose} {usual_tflops:.1}"
                )?;
                if let Clocks::Held(held) = clocks {
                    write!(f, ", and {held}")?;
                }
            }
            cause => {
                if let Some((own, usual)) = self.tflops {
                    write!(f, "; its GEMMs run at {own:.1} TFLOPS, the others' at {usual:.1}")?;
                }
                // The clause about the other processes follows.
                if *cause != Cause::SharedGpu {
                    write!(f, "; {cause}")?;
                }
            }
        }
        self.rest().map_or(Ok(()), |rest| write!(f, "; {rest}"))
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SlowGemms { .. } => f.write_str("its GEMMs are slower"),
            Self::MoreWork { times } => write!(f, "it does {times:.2} times their FLOPs"),
            Self::WaitsLess { pct, usual_pct } => write!(
                f,
                "its threads wait for the GPU {pct:.0} % of the time, the others' {usual_pct:.0} %: work reaches its GPU late"
            ),
            Self::LacksCpu(lacks) => lacks.fmt(f),
            Self::MoreWaits { per_step, usual_per_step } => write!(
                f,
                "its threads wait for the GPU {per_step:.0} times a step, the others' {usual_per_step:.0} times"
            ),
            Self::HostWork { work, pct, usual_pct } => {
                write!(f, "{} {pct:.0} % of its time, {usual_pct:.0} % of the others'", work.phrase())
            }
            Self::SharedGpu => f.write_str("its GPU also runs other processes"),
            Self::Unknown => f.write_str("the cause is unknown"),
        }
    }
}

impl WithFigures for Straggler {
    fn figures(&self, to: &mut Figures) {
        to.put("step_ms", self.step_ms);
        to.put("explained_pct", self.explained_pct);
        to.count("collectives_timed", u64::from(self.timed));
        to.count("collectives_last", u64::from(self.last));
        match &self.cause {
            Cause::SlowGemms { tflops, usual_tflops, clocks, .. } => {
                to.put("gemm_tflops", *tflops);
                to.put("usual_gemm_tflops", *usual_tflops);
                to.put("below_pct", 100.0 * (1.0 - tflops / usual_tflops));
                clocks.figures(to);
                return;
            }
            Cause::MoreWork { times } => to.put("times_usual_work", *times),
            Cause::WaitsLess { pct, usual_pct } => {
                to.put("blocked_pct", *pct);
                to.put("usual_blocked_pct", *usual_pct);
            }
            Cause::LacksCpu(lacks) => lacks.figures(to),
            Cause::MoreWaits { per_step, usual_per_step } => {
                to.put("waits_per_step", *per_step);
                to.put("usual_waits_per_step", *usual_per_step);
            }
            Cause::HostWork { work, pct, usual_pct } => {
                let (own, usual) = work.figure();
                to.put(own, *pct);
                to.put(usual, *usual_pct);
            }
            Cause::SharedGpu | Cause::Unknown => {}
        }
        to.put("gemm_tflops", self.tflops.map(|(own, _)| own));
        to.put("usual_gemm_tflops", self.tflops.map(|(_, usual)| usual));
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Evidence, *};

    /// If the advice is to look at the program between launches, the evidence names the place there, once it
    /// has been sampled.
    #[test]
    fn evidence_of_a_late_host_is_what_the_advice_is_for() {
        let causes = [
            Cause::MoreWork { times: 2.0 },
            Cause::WaitsLess { pct: 1.0, usual_pct: 30.0 },
            Cause::MoreWaits { per_step: 20.0, usual_per_step: 1.0 },
            Cause::HostWork { work: HostWork::Copies, pct: 40.0, usual_pct: 1.0 },
            Cause::SharedGpu,
            Cause::Unknown,
        ];
        for cause in causes {
            let straggler = Straggler {
                rank: Rank(5),
                host: "a".into(),
                pct: 18.0,
                error_pct: 1.5,
                step_ms: Some(120.0),
                timed: 130,
                last: 128,
                tflops: None,
                cause: cause.clone(),
                explained_pct: None,
            };
            let is_late = Evidence::Straggler(straggler).launches_late();
            assert_eq!(is_late, cause.advice() == LATE_HOST, "{cause:?}");
        }
    }
}
