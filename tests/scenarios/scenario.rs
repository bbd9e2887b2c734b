//! One simulated job with its fault, and the findings expected for it.

use xpu_model::finding::{Class, Finding, Kind};

use crate::{fault::Fault, program::Layout};

/// Random variation of a healthy job, each as a share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noise {
    pub compute: f64,
    /// Variation of a transfer's time, as an exponent of e.
    pub network: f64,
    /// Time lost by Python, as a share of a step.
    pub host: f64,
    /// Variation of efficiency between GEMM shapes, of which a few are timed.
    pub shapes: f64,
    /// Digests that do not arrive.
    pub lost: f64,
}

impl Noise {
    pub(crate) const USUAL: Self =
        Self { compute: 0.01, network: 0.06, host: 0.004, shapes: 0.12, lost: 0.004 };
    pub(crate) const JITTERY: Self = Self { network: 0.35, host: 0.012, lost: 0.02, ..Self::USUAL };
}

#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub seed: u64,
    pub ranks: u32,
    pub layout: Layout,
    /// Length of an undisturbed step, in seconds.
    pub step: f64,
    pub noise: Noise,
    /// Sampling of GEMMs and of collectives: one in 2^k is timed.
    pub timed: (u8, u8),
    /// Whether the CPU calls a whole step before it waits.
    pub ahead: bool,
    /// How many steps the CPU calls before it waits.
    pub burst: u64,
    /// Whether hosts need longer for a step than GPUs, so that GPUs wait for work. Hosts wait for their GPU
    /// every ten steps.
    pub host_bound: bool,
    /// Whether the first steps compile.
    pub warm_up: bool,
    pub fault: Fault,
    /// When the fault begins, in seconds. `until` is the time up to which the job is watched.
    pub from: f64,
    /// When the fault ends, or infinity.
    pub to: f64,
    pub until: f64,
}

impl Setting {
    /// Whether the fault is present at `at`.
    pub(crate) fn has_fault_at(&self, at: f64) -> bool {
        (self.from..self.to).contains(&at)
    }
}

/// A finding that must be reported.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Expected {
    pub kind: Kind,
    /// The finding may have any of these classes.
    pub classes: Vec<Class>,
    pub ranks: Named,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Named {
    Exactly(Vec<u32>),
    /// This rank, possibly among others.
    Among(u32),
    /// Only ranks of one chain through a pipeline, which are this far apart.
    Chain {
        rank: u32,
        apart: u32,
    },
    Anyone,
}

impl Expected {
    pub(crate) fn is(&self, finding: &Finding) -> bool {
        self.classes.contains(&finding.class) && self.is_of(finding)
    }

    /// Whether the finding names some of several expected ranks, with an expected class.
    pub(crate) fn is_in_part(&self, finding: &Finding) -> bool {
        let Named::Exactly(ranks) = &self.ranks else { return false };
        let named = &finding.ranks;
        let is_right = finding.kind == self.kind && self.classes.contains(&finding.class);
        is_right && !named.is_empty() && named.iter().all(|rank| ranks.contains(&rank.0))
    }

    pub(crate) fn is_without_cause(&self, finding: &Finding) -> bool {
        finding.kind == Kind::SlowRank && finding.class == Class::Step && self.is_of(finding)
    }

    /// Whether the finding has the expected kind and ranks, whatever its class.
    fn is_of(&self, finding: &Finding) -> bool {
        let named = |rank: u32| finding.ranks.iter().any(|known| known.0 == rank);
        let ranks = match &self.ranks {
            Named::Exactly(ranks) => {
                ranks.len() == finding.ranks.len() && ranks.iter().all(|&rank| named(rank))
            }
            Named::Among(rank) => named(*rank),
            Named::Chain { rank, apart } => finding.ranks.iter().all(|known| known.0 % apart == rank % apart),
            Named::Anyone => true,
        };
        finding.kind == self.kind && ranks
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub setting: Setting,
    /// Empty for a healthy job. Of several findings the most expensive comes first.
    pub expected: Vec<Expected>,
    pub may_be_left: bool,
}

impl Scenario {
    /// Whether all expected findings are reported, in this order; of another process on a GPU, with that process.
    pub(crate) fn is_found(&self, found: &[Finding]) -> bool {
        let is_whole = |finding: &Finding| {
            !matches!(self.setting.fault, Fault::Neighbour { .. }) || finding.evidence.neighbours().is_some()
        };
        let place = |expected: &Expected| found.iter().position(|one| expected.is(one) && is_whole(one));
        let places = self.expected.iter().map(place);
        let places: Option<Vec<_>> = places.collect();
        places.is_some_and(|places| !places.is_empty() && places.is_sorted())
    }

    /// The finding whose cost is compared, if the job has one fault that makes steps longer.
    pub(crate) fn costs(&self) -> Option<&Expected> {
        let one = self.expected.first().filter(|_| self.expected.len() == 1 && !self.may_be_left)?;
        matches!(one.kind, Kind::SlowRank | Kind::SlowLink | Kind::Regression).then_some(one)
    }

    pub(crate) fn is_stall(&self) -> bool {
        matches!(self.setting.fault, Fault::Stall { .. })
    }
}
