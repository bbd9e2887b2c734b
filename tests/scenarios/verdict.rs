//! Plays a scenario through hosts, the job and its findings, and judges what they report.

use xpu_model::{
    finding::{self, Finding, Kind},
    job::Jobs,
};

use crate::{
    collector::Collectors,
    flow::Flow,
    moment,
    scenario::{Expected, Scenario, Setting},
};

/// The budgets: steps or seconds for a slow rank, seconds for a hang.
const STEPS: f64 = 20.0;
const SECONDS: f64 = 30.0;
const HANG_SECONDS: f64 = 15.0;

/// The time from the last frame of a second until a viewer has all frames.
const ARRIVES: f64 = 0.1;

/// How long a finding is watched after it named the rank: whether it stays, whether a wrong one joins it, and
/// what it costs.
const SETTLES: f64 = 8.0;
const COSTS: f64 = 20.0;

/// The time after the end of a fault within which its finding must disappear.
const GOES: f64 = 45.0;

/// How much the reported begins may differ: in seconds, and as a share of the time since then, because an old
/// history is coarser.
const SINCE: f64 = 3.0;
const SINCE_SHARE: f64 = 0.1;

#[derive(Clone, Debug, Default)]
pub(crate) struct Verdict {
    /// How long it took until the expected findings were reported: in seconds, and in steps of the usual
    /// length.
    pub named: Option<(f64, f64)>,
    /// Whether `named` is within the budget.
    pub in_time: bool,
    /// Wrong findings: when each was reported, and its evidence.
    pub wrong: Vec<(f64, String)>,
    /// The cost at the end, reported and injected, in ms per step.
    pub cost: Option<(f64, f64)>,
    /// Whether a viewer that connects at the end finds the same.
    pub late: Option<bool>,
    /// The seconds since the finding began, to the viewer from the start and to the one that connects at the end,
    /// if that one reports the same cause.
    pub since: Option<(f64, Option<f64>)>,
    /// What was found at the end, and what a viewer that connects at the end finds.
    pub last: Vec<String>,
    pub last_for_late: Vec<String>,
}

impl Verdict {
    /// Whether a late viewer finds the same, and the reported cost is right.
    pub(crate) fn is_well_reported(&self) -> bool {
        self.late == Some(true)
            && self.has_same_since() != Some(false)
            && self.cost.is_none_or(|(reported, injected)| (reported / injected - 1.0).abs() <= 0.15)
    }
}

impl Verdict {
    /// Whether both viewers report the same cause and begin.
    pub(crate) fn has_same_since(&self) -> Option<bool> {
        let (always, late) = self.since?;
        Some(late.is_some_and(|late| (always - late).abs() <= SINCE + SINCE_SHARE * always))
    }

    /// By what share of the time since then the reported begins differ.
    pub(crate) fn since_differs_by(&self) -> Option<f64> {
        let (always, late) = self.since?;
        Some((always - late?).abs() / always)
    }
}

/// How a scenario is watched.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Watch {
    /// At least this long after the fault began, in seconds.
    pub long: f64,
    /// The late viewer asks for as much history as one of this many hosts.
    pub hosts: Option<usize>,
}

pub(crate) fn play(scenario: &Scenario, watch: Watch) -> Verdict {
    let setting = &scenario.setting;
    let mut collectors = Collectors::new(setting);
    let mut jobs = Jobs::default();
    let mut verdict = Verdict::default();
    let settles = if scenario.is_stall() { SETTLES } else { COSTS };
    let (mut at, mut found);
    loop {
        let (frames, end) = collectors.second();
        for frame in &frames {
            jobs.fold(frame);
        }
        at = end;
        let now = at + ARRIVES;
        let since = now - collectors.trouble_at();
        found = jobs.foremost().map(|job| finding::examine(job, moment(now))).unwrap_or_default();
        if since > 0.0 && scenario.is_found(&found) {
            verdict.named.get_or_insert((since, since / setting.step));
        }
        let is_over = now > setting.to + GOES;
        for finding in &found {
            let text =
                format!("{:?} {:?} {:?}: {}", finding.kind, finding.class, finding.ranks, finding.evidence);
            let mut expected = scenario.expected.iter();
            // A finding is right if it names the expected rank, or one of several, or gives no cause for it.
            // A finding that steps became longer is right too.
            let is_right = |one: &Expected| {
                one.is(finding)
                    || one.is_in_part(finding)
                    || one.is_without_cause(finding)
                    || (!scenario.is_stall() && finding.kind == Kind::Regression)
            };
            let is_right = since > 0.0 && !is_over && expected.any(is_right);
            if !is_right && verdict.wrong.len() < 4 {
                verdict.wrong.push((since, text));
            }
        }
        let ends = setting.to.is_finite();
        let settled =
            !ends && verdict.named.is_some_and(|(named, _)| since > watch.long.max(named + settles));
        if now > setting.until.max(setting.from + watch.long) || settled {
            break;
        }
    }
    verdict.last = texts(&found);
    verdict.in_time = scenario.may_be_left
        || verdict.named.is_some_and(|(seconds, steps)| {
            if scenario.is_stall() { seconds <= HANG_SECONDS } else { seconds <= SECONDS || steps <= STEPS }
        });
    if scenario.is_found(&found) {
        let mut late = Jobs::default();
        collectors.for_new_viewer(at, watch.hosts).iter().for_each(|frame| late.fold(frame));
        let shown =
            late.foremost().map(|job| finding::examine(job, moment(at + ARRIVES))).unwrap_or_default();
        verdict.late = Some(scenario.is_found(&shown));
        verdict.last_for_late = texts(&shown);
        let is_expected = |finding: &&Finding| scenario.expected.iter().any(|one| one.is(finding));
        verdict.since = found.iter().find(is_expected).map(|one| {
            let cause = |finding: &Finding| (finding.kind, finding.class, finding.ranks.clone());
            let same = shown.iter().find(|other| cause(other) == cause(one));
            (one.since_s, same.map(|other| other.since_s))
        });
        verdict.cost = scenario.costs().and_then(|expected| {
            let shown = reported_cost(&found, expected)?;
            Some((shown, injected_cost(setting, at)))
        });
    }
    verdict
}

fn texts(found: &[Finding]) -> Vec<String> {
    found
        .iter()
        .map(|one| format!("{:?} {:?} {:?} {:?}: {}", one.kind, one.class, one.ranks, one.cost, one.evidence))
        .collect()
}

fn reported_cost(found: &[Finding], expected: &Expected) -> Option<f64> {
    found.iter().find(|finding| expected.is(finding))?.cost?.ms_per_step
}

/// An injected cost is measured over at least this time, which has some dozens of pauses if there is one
/// every few seconds.
const MEASURED: f64 = 120.0;

/// How much longer the steps since the fault began are than the same steps without it.
fn injected_cost(setting: &Setting, until: f64) -> f64 {
    let until = if setting.fault.is_rare() { until.max(setting.from + MEASURED) } else { until };
    let ends = |setting: &Setting| {
        let mut flow = Flow::new(setting);
        while flow.known_until() < until {
            flow.step();
        }
        flow.ends
    };
    let healthy = Setting { fault: crate::fault::Fault::None, ..setting.clone() };
    let (with, without) = (ends(setting), ends(&healthy));
    let Some(first) = with.iter().position(|end| *end >= setting.from) else { return 0.0 };
    let last = with.len().min(without.len()) - 1;
    if last <= first {
        return 0.0;
    }
    let took = |ends: &[f64]| ends[last] - ends[first];
    1000.0 * (took(&with) - took(&without)) / (last - first) as f64
}
