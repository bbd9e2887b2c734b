//! What limits a job as a whole, from its ranks' digests: shares of the time that add up to all of it.

use std::fmt;

use serde::{Deserialize, Serialize};
use xpu_wire::id::Rank;

use super::{Breakdown, Job};

/// Ranks that are examined; in a job that trains together all spend their time alike.
const ASKED: usize = 64;

/// Threads that wait for the GPU for less than this share of the time leave it idle.
const RUNS_AHEAD: f64 = 0.1;

/// Where the time of the last half minute went, in percent, for the median rank. The four shares add up to
/// 100.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bound {
    pub by: BoundBy,
    /// The GPU in GEMMs.
    pub gemms_pct: f64,
    /// Its three parts add up to it.
    #[serde(flatten)]
    pub gemms: Option<GemmTime>,
    /// Exposed communication, without the next figure.
    pub transfers_pct: f64,
    /// Exposed communication in which the rank waited for other ranks.
    pub waiting_pct: f64,
    /// Everything else: other kernels, copies, and an idle GPU.
    pub other_pct: f64,
    /// Time that threads waited for the GPU, in addition; `None` if it is unknown.
    pub host_waits_pct: Option<f64>,
}

/// Parts of the GEMM time, in percent of all time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct GemmTime {
    /// The time they would take at the GPU's peak.
    #[serde(rename = "gemms_at_peak_pct")]
    pub at_peak_pct: f64,
    /// Additional time because clocks are below the highest: a power limit, heat, a setting.
    #[serde(rename = "gemms_clock_pct")]
    pub clock_pct: f64,
    /// Additional time beyond what that clock allows: shapes, kernels, and other work on the GPU.
    #[serde(rename = "gemms_below_peak_pct")]
    pub below_peak_pct: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BoundBy {
    Gemms,
    Communication,
    /// Late ranks.
    Stragglers,
    /// The GPU is idle most of the time: no thread waits for it.
    Host,
    /// Kernels other than GEMMs, copies, or gaps.
    Other,
}

impl Job {
    /// `None` until GEMMs and exposed communication are known; a single rank without NCCL has none of the
    /// latter.
    /// `live`: the ranks with current figures.
    pub fn bound(&self, live: impl Iterator<Item = Rank>) -> Option<Bound> {
        let live: Vec<Rank> = live.collect();
        let every = live.len().div_ceil(ASKED).max(1);
        let known: Vec<_> = live.iter().step_by(every).filter_map(|&rank| self.breakdown(rank)).collect();
        Bound::of(&Breakdown::middle(&known), self.world_size() == 1)
    }
}

impl Bound {
    fn of(one: &Breakdown, is_alone: bool) -> Option<Self> {
        let gemms = one.gemms.filter(|share| *share > 0.0)?.min(1.0);
        let exposed = one.exposed.or_else(|| is_alone.then_some(0.0))?.min(1.0 - gemms);
        let waited = one.waiting.zip(one.collectives).filter(|(_, all)| *all > 0.0);
        let waiting = exposed * waited.map_or(0.0, |(waiting, all)| (waiting / all).min(1.0));
        let (transfers, other) = (exposed - waiting, 1.0 - gemms - exposed);
        let largest = gemms.max(transfers).max(waiting).max(other);
        let by = if largest == gemms {
            BoundBy::Gemms
        } else if largest == waiting {
            BoundBy::Stragglers
        } else if largest == transfers {
            BoundBy::Communication
        } else if one.blocked.is_some_and(|blocked| blocked < RUNS_AHEAD) {
            BoundBy::Host
        } else {
            BoundBy::Other
        };
        Some(Self {
            by,
            gemms_pct: 100.0 * gemms,
            gemms: GemmTime::of(one, gemms),
            transfers_pct: 100.0 * transfers,
            waiting_pct: 100.0 * waiting,
            other_pct: 100.0 * other,
            host_waits_pct: one.blocked.map(|blocked| 100.0 * blocked),
        })
    }
}

impl GemmTime {
    /// `gemms`: the share of all time. `None` if the GPU's peak or its clock is unknown.
    fn of(one: &Breakdown, gemms: f64) -> Option<Self> {
        let at_peak = one.at_peak?.min(gemms);
        let clock = one.clock.filter(|clock| *clock > 0.0)?.min(1.0);
        let at_clock = (at_peak / clock).min(gemms);
        Some(Self {
            at_peak_pct: 100.0 * at_peak,
            clock_pct: 100.0 * (at_clock - at_peak),
            below_peak_pct: 100.0 * (gemms - at_clock),
        })
    }
}

/// `45 at the GPU's peak, 5 lost to lower clocks, 13 below what they allow`
impl fmt::Display for GemmTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at_peak_pct, clock_pct, below_peak_pct } = self;
        write!(
            f,
            "{at_peak_pct:.0} at the GPU's peak, {clock_pct:.0} lost to lower clocks, {below_peak_pct:.0} below what they allow"
        )
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = match self.by {
            BoundBy::Gemms => "GEMMs",
            BoundBy::Communication => "communication",
            BoundBy::Stragglers => "waiting for other ranks",
            BoundBy::Host => "the host, which gives the GPU too little work",
            BoundBy::Other => "what is neither GEMM nor communication",
        };
        let Self { gemms_pct, transfers_pct, waiting_pct, other_pct, .. } = *self;
        let made_of = self.gemms.map_or_else(String::new, |gemms| format!(" ({gemms})"));
        write!(
            f,
            "bound by {by}: GEMMs {gemms_pct:.0} %{made_of}, exposed communication {transfers_pct:.0} %, "
        )?;
        write!(f, "waiting for other ranks {waiting_pct:.0} %, all else {other_pct:.0} % of the time")
    }
}

#[cfg(test)]
mod tests {
    use xpu_wire::simulation::Simulation;

    use super::*;
    use crate::job::Jobs;

    fn one(gemms: f64, exposed: f64, waiting: f64, blocked: f64) -> Breakdown {
        Breakdown {
            gemms: Some(gemms),
            at_peak: Some(gemms / 2.0),
            clock: Some(0.8),
            collectives: Some(0.5),
            waiting: Some(waiting * 0.5),
            exposed: Some(exposed),
            blocked: Some(blocked),
        }
    }

    #[test]
    fn the_largest_share_is_what_binds_and_all_add_up() {
        let cases = [
            (one(0.6, 0.2, 0.5, 0.5), BoundBy::Gemms),
            (one(0.3, 0.5, 0.1, 0.5), BoundBy::Communication),
            (one(0.3, 0.5, 0.9, 0.5), BoundBy::Stragglers),
            (one(0.2, 0.1, 0.5, 0.02), BoundBy::Host),
            (one(0.2, 0.1, 0.5, 0.8), BoundBy::Other),
            // GEMMs on several streams, and waits beside them.
            (one(1.3, 0.5, 0.5, 0.5), BoundBy::Gemms),
        ];
        for (breakdown, by) in cases {
            let bound = Bound::of(&breakdown, false).unwrap();
            assert_eq!(bound.by, by, "{bound}");
            let Bound { gemms_pct, transfers_pct, waiting_pct, other_pct, .. } = bound;
            assert!((gemms_pct + transfers_pct + waiting_pct + other_pct - 100.0).abs() < 1e-9, "{bound:?}");
        }
    }

    /// Half of the peak at four fifths of the clock: of 60 %, 30 at the peak, 7.5 lost to clocks, 22.5 below what they allow.
    #[test]
    fn time_at_gemms_is_split_by_peak_and_clock() {
        let made_of = |one: Breakdown| Bound::of(&one, false).unwrap().gemms;
        let split = made_of(one(0.6, 0.2, 0.5, 0.5)).unwrap();
        let parts = [split.at_peak_pct, split.clock_pct, split.below_peak_pct];
        for (part, wanted) in parts.iter().zip([30.0, 7.5, 22.5]) {
            assert!((part - wanted).abs() < 1e-9, "{split:?}");
        }
        // A clock above the one for which peaks are stated, and GEMMs that slow each other.
        for invalid in [Breakdown { clock: Some(1.2), ..one(0.6, 0.2, 0.5, 0.5) }, one(1.3, 0.5, 0.5, 0.5)] {
            let bound = Bound::of(&invalid, false).unwrap();
            let GemmTime { at_peak_pct, clock_pct, below_peak_pct } = bound.gemms.unwrap();
            assert!((at_peak_pct + clock_pct + below_peak_pct - bound.gemms_pct).abs() < 1e-9, "{bound:?}");
            assert!(clock_pct >= 0.0 && below_peak_pct >= 0.0, "{bound:?}");
        }
        assert_eq!(made_of(Breakdown { clock: None, ..one(0.6, 0.2, 0.5, 0.5) }), None);
        assert_eq!(made_of(Breakdown { at_peak: None, ..one(0.6, 0.2, 0.5, 0.5) }), None);
    }

    #[test]
    fn what_is_not_known_is_not_told() {
        let unknown = Breakdown { exposed: None, ..one(0.5, 0.0, 0.0, 0.0) };
        assert_eq!(Bound::of(&unknown, false), None);
        assert_eq!(Bound::of(&unknown, true).unwrap().by, BoundBy::Gemms);
        assert_eq!(Bound::of(&Breakdown { gemms: None, ..unknown }, true), None);
    }

    #[test]
    fn a_straggler_binds_the_job_in_which_most_of_the_time_is_waiting() {
        let bound = |slow: Vec<(Rank, f64)>| {
            let simulation = Simulation { slow, ..Simulation::new(1, 1, 8) };
            let mut jobs = Jobs::default();
            (100..130).flat_map(|second| simulation.digests(second)).for_each(|frame| jobs.fold(&frame));
            jobs.foremost().unwrap().bound((0..8).map(Rank)).unwrap()
        };
        assert_eq!(bound(Vec::new()).by, BoundBy::Gemms);
        let late = bound(vec![(Rank(3), 3.0)]);
        assert_eq!(late.by, BoundBy::Stragglers, "{late}");
        assert!(late.to_string().starts_with("bound by waiting for other ranks: GEMMs "), "{late}");
    }
}
