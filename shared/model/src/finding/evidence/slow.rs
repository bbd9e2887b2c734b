//! Ranks for which the others wait.

use std::fmt;

use xpu_wire::id::{HostName, Rank};

use super::{super::device::Clocks, Figures, WithFigures};
use crate::{figure, phrase};

/// The ranks, and the worst one, whose figures are given.
#[derive(Clone, Debug, PartialEq)]
pub struct Named {
    pub ranks: Vec<Rank>,
    pub worst: Rank,
    pub host: HostName,
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { worst, host, .. } = self;
        match self.ranks.len() {
            1 => write!(f, "rank {worst} ({host})"),
            _ => write!(f, "{}: the worst, rank {worst} ({host}),", phrase::ranks(&self.ranks)),
        }
    }
}

/// A rank's GEMM rate, and the expected one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    pub tflops: f64,
    pub usual_tflops: f64,
    /// The number of ranks with the same work whose median the expected rate is; `None` if that is the rank's
    /// own earlier rate.
    pub ranks: Option<usize>,
}

impl Rates {
    fn against(&self) -> String {
        self.ranks.map_or_else(
            || "it had before".to_owned(),
            |ranks| format!("median of {} ranks with the same work", figure::count(ranks as u64)),
        )
    }

    fn below_pct(&self) -> f64 {
        100.0 * (1.0 - self.tflops / self.usual_tflops)
    }

    fn figures(&self, to: &mut Figures) {
        to.put("gemm_tflops", self.tflops);
        to.put("usual_gemm_tflops", self.usual_tflops);
        to.put("below_pct", self.below_pct());
        to.count("ranks_compared", self.ranks.map(|ranks| ranks as u64));
    }
}

/// A share of the time, and the same share of a step, if steps are known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loss {
    pub pct: f64,
    /// Milliseconds lost in a step, and the length of the step.
    pub ms_of_step: Option<(f64, f64)>,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ms_of_step {
            Some((ms, step)) => write!(f, "{ms:.1} ms of a {step:.1} ms step"),
            None => write!(f, "{:.1} % of the time", self.pct),
        }
    }
}

/// Percent of its collectives below which a rank is hardly ever last.
const SELDOM: f64 = 0.5;

/// A rank's arrival at its collectives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Waiting {
    /// Share of its collectives that it enters last, in percent.
    pub last_pct: f64,
    pub loss: Loss,
    /// Whether the loss is its cost to the others; otherwise it is its summed arrival skew.
    pub is_cost: bool,
    /// The rank whose larger delay hides this one; the cost is that without it.
    pub behind: Option<Rank>,
}

/// The rank's arrival, if known, and its age if it is not current, because a hung job reports nothing new.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrival {
    pub waiting: Option<Waiting>,
    pub as_of_s: Option<f64>,
}

impl fmt::Display for Arrival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.waiting {
            None => f.write_str("its arrival skew is unknown")?,
            Some(Waiting { loss, behind: Some(rank), .. }) => {
                write!(f, "it costs the others nothing yet, and {loss} once rank {rank} is on time")?;
            }
            Some(Waiting { last_pct, loss, is_cost, .. }) => {
                // If few collectives are timed, the rank may enter none of them last.
                let is_last = last_pct >= SELDOM;
                if is_last {
                    write!(f, "it is last into {last_pct:.0} % of its collectives")?;
                }
                match (is_last, is_cost) {
                    (true, true) => write!(f, ", which costs {loss}")?,
                    (false, true) => write!(f, "it costs the others {loss}")?,
                    (true, false) => {
                        write!(f, ", and over all of them it is later than the others by {loss}")?;
                    }
                    (false, false) => {
                        write!(f, "over all collectives, it enters later than the others by {loss}")?;
                    }
                }
            }
        }
        self.as_of_s.map_or(Ok(()), |age| write!(f, " (as of {age:.0} s ago: it has made no progress since)"))
    }
}

impl Arrival {
    fn figures(&self, to: &mut Figures) {
        if let Some(Waiting { last_pct, loss, is_cost, .. }) = self.waiting {
            to.put("last_pct", last_pct);
            // Its cost is a separate figure.
            to.put("late_pct", (!is_cost).then_some(loss.pct));
            to.put("late_ms_per_step", loss.ms_of_step.map(|(ms, _)| ms).filter(|_| !is_cost));
            to.put("step_ms", loss.ms_of_step.map(|(_, step)| step));
        }
        to.put("as_of_s", self.as_of_s);
    }
}

/// Its GPU computes slower.
#[derive(Clone, Debug, PartialEq)]
pub struct SlowGemms {
    pub who: Named,
    pub rates: Rates,
    pub clocks: Clocks,
    pub arrival: Arrival,
}

impl fmt::Display for SlowGemms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { who, rates, clocks, arrival } = self;
        let Rates { tflops, usual_tflops, .. } = rates;
        let (below, against) = (rates.below_pct(), rates.against());
        write!(
            f,
            "{who} runs its GEMMs at {tflops:.1} TFLOPS, {below:.0} % below the {usual_tflops:.1} {against}"
        )?;
        if let Clocks::Held(held) = clocks {
            write!(f, ", and {held}")?;
        }
        write!(f, "; {arrival}")
    }
}

impl WithFigures for SlowGemms {
    fn figures(&self, to: &mut Figures) {
        self.rates.figures(to);
        self.clocks.figures(to);
        self.arrival.figures(to);
    }
}

/// Its GPU is as fast as the others' but gets its work late.
#[derive(Clone, Debug, PartialEq)]
pub struct LateHost {
    pub who: Named,
    pub rates: Rates,
    pub arrival: Arrival,
}

impl fmt::Display for LateHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { who, rates, arrival } = self;
        let Rates { tflops, usual_tflops, .. } = rates;
        let compared = match tflops / usual_tflops {
            1.03.. => "faster than",
            0.97.. => "as fast as",
            _ => "a little less than",
        };
        let is_hidden = arrival.waiting.is_some_and(|waiting| waiting.behind.is_some());
        let delays = if is_hidden { "is late" } else { "delays the others" };
        write!(
            f,
            "{who} {delays}: {arrival}, while its GEMMs run at {tflops:.1} TFLOPS, {compared} the {usual_tflops:.1} {}",
            rates.against()
        )
    }
}

impl WithFigures for LateHost {
    fn figures(&self, to: &mut Figures) {
        self.rates.figures(to);
        self.arrival.figures(to);
    }
}

/// The rank does more FLOPs than the others, in a job where all should do the same.
#[derive(Clone, Debug, PartialEq)]
pub struct MoreWork {
    pub who: Named,
    /// Its FLOPs as a multiple of the others'.
    pub times: f64,
    /// Its rate, and the others' median with their number.
    pub rates: Rates,
    pub arrival: Arrival,
}

impl fmt::Display for MoreWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { who, times, rates: Rates { tflops, usual_tflops, ranks }, arrival } = self;
        let others = ranks.unwrap_or(0);
        write!(
            f,
            "{who} does {times:.1}x the FLOPs of the {others} ranks with the same communicators, at the same or a higher rate ({tflops:.1} TFLOPS, theirs {usual_tflops:.1}), and {arrival}"
        )
    }
}

impl WithFigures for MoreWork {
    fn figures(&self, to: &mut Figures) {
        to.put("times_usual_work", self.times);
        self.rates.figures(to);
        self.arrival.figures(to);
    }
}
