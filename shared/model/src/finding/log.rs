//! Findings that began and ended, with their times.

use std::{collections::VecDeque, fmt, time::Duration};

use serde::{Deserialize, Serialize};
use xpu_wire::{id::Rank, unit::Moment};

use super::{Class, Cost, Finding, Kind, Money};
use crate::figure;

/// Entries kept; the oldest are dropped.
const KEPT: usize = 256;

/// The first costs of a finding are too low, because they are means over the time before the fault too. Meanwhile,
/// the newest is the best for the time since the fault began.
const SETTLES: Duration = Duration::from_secs(30);

/// The same in updates: in a history that was merged, each digest covers minutes.
const SETTLES_AFTER: u32 = 30;

#[derive(Debug, Default)]
pub struct Log {
    entries: VecDeque<Entry>,
    present: Vec<Present>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub at: Moment,
    pub finding: Finding,
    pub what: What,
}

impl Entry {
    /// `, 0.30 GPU-hours lost`; empty for a finding that began, or whose cost is unknown.
    pub fn lost(&self) -> String {
        let cost = self.finding.cost.filter(|_| matches!(self.what, What::Ended(_)));
        cost.map_or_else(String::new, |cost| format!(", {:.2} GPU-hours lost", cost.gpu_hours))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Began,
    /// It ended, after this duration.
    Ended(Duration),
}

/// `began`, `ended after 45 s`
impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Began => write!(f, "began"),
            Self::Ended(after) => write!(f, "ended after {}", figure::age(*after)),
        }
    }
}

#[derive(Debug)]
struct Present {
    /// When it was first seen.
    since: Moment,
    /// When the fault began, by the figures of `costliest`.
    began: Moment,
    finding: Finding,
    /// The finding when it cost most. At its end, most of its figures are from after the fault.
    costliest: Finding,
    /// When a finding about some of the same ranks had ended. What was lost before is not counted again.
    not_before: Moment,
    /// GPU-hours lost until `heard`; `None` while no cost is known.
    gpu_hours: Option<f64>,
    /// The newest report that is included, and the number of updates with a newer one than before.
    heard: Moment,
    updates: u32,
    /// Whether a larger delay has hidden it.
    was_hidden: bool,
}

impl Present {
    fn new(finding: &Finding, now: Moment, heard: Moment, not_before: Moment) -> Self {
        let began = began(finding, now).max(not_before);
        Self {
            since: now,
            began,
            finding: finding.clone(),
            costliest: finding.clone(),
            not_before,
            gpu_hours: finding.cost.map(|cost| {
                if finding.stops_the_job() { cost.gpu_hours } else { lost_since(began, cost, now) }
            }),
            heard,
            updates: 0,
            was_hidden: is_hidden(finding),
        }
    }

    /// GPU-hours lost until the report at `heard`. The time since the last update is charged with the cost of then,
    /// so that the sum never decreases. Those of a job without progress follow from its duration alone.
    fn gpu_hours(&self, finding: &Finding, now: Moment, heard: Moment) -> Option<f64> {
        if finding.stops_the_job() {
            return finding.cost.map(|cost| cost.gpu_hours);
        }
        let newest = || {
            let cost = finding.cost?;
            Some(lost_since(began(finding, now).max(self.not_before), cost, now))
        };
        let Some(before) = self.gpu_hours else { return newest() };
        let cost = self.finding.cost.filter(|_| self.finding.evidence.age_s().is_none());
        let sum = before + cost.map_or(0.0, |cost| cost.gpu_hours_in(heard.since(self.heard)));
        let is_new = now.since(self.since) < SETTLES || self.updates < SETTLES_AFTER;
        let was_seen = !self.was_hidden && !is_hidden(finding) && heard > self.heard;
        Some(newest().filter(|_| is_new && was_seen).map_or(sum, |newest| newest.max(sum)))
    }

    fn update(&mut self, finding: &Finding, now: Moment, heard: Moment) {
        self.gpu_hours = self.gpu_hours(finding, now, heard).or(self.gpu_hours);
        let has_advanced = heard > self.heard;
        self.updates += u32::from(has_advanced);
        self.heard = self.heard.max(heard);
        self.was_hidden |= is_hidden(finding);
        // The least that it costs: the first figures are the least certain.
        let least = |finding: &Finding| finding.cost.map(|cost| cost.pct - cost.pct_error);
        if least(finding) > least(&self.costliest) {
            self.take_costliest(finding, now);
        } else if least(finding) == least(&self.costliest) {
            // Its begin stays, because that by the figures moves on with the clock once they are old.
            self.costliest = finding.clone();
        }
        self.finding = finding.clone();
    }

    /// Goes on as a finding that knows more of the same fault.
    fn carry_over(&mut self, finding: &Finding, now: Moment, heard: Moment) {
        self.update(finding, now, heard);
        self.take_costliest(finding, now);
    }

    fn take_costliest(&mut self, finding: &Finding, now: Moment) {
        self.costliest = finding.clone();
        self.began = began(finding, now).max(self.not_before).min(self.since);
    }

    /// The finding when it cost most, with all that was lost.
    fn in_total(self) -> Finding {
        let mut finding = self.costliest;
        if let (Some(cost), Some(gpu_hours)) = (&mut finding.cost, self.gpu_hours) {
            cost.gpu_hours = gpu_hours;
        }
        finding
    }
}

fn began(finding: &Finding, now: Moment) -> Moment {
    let lasted = Duration::from_secs_f64(finding.since_s.max(0.0)).as_nanos();
    Moment(now.0.saturating_sub(u64::try_from(lasted).unwrap_or(u64::MAX)))
}

/// GPU-hours lost since a moment that may be later than the begin of the finding.
fn lost_since(began: Moment, cost: Cost, now: Moment) -> f64 {
    cost.gpu_hours.min(cost.gpu_hours_in(now.since(began)))
}

fn is_hidden(finding: &Finding) -> bool {
    finding.cost.is_some_and(|cost| cost.behind.is_some())
}

/// A finding that has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndedFinding {
    pub kind: Kind,
    pub class: Class,
    pub ranks: Vec<Rank>,
    /// When the fault began, and when it was no longer found, in seconds since 1970.
    pub began_at: f64,
    pub ended_at: f64,
    /// The headline and the evidence when it cost most.
    pub headline: String,
    pub evidence: String,
    /// GPU-hours lost; `None` if the cost was unknown.
    #[serde(default)]
    pub gpu_hours: Option<f64>,
    /// Their price, if one is set.
    #[serde(flatten, skip_deserializing)]
    pub money: Option<Money>,
}

impl EndedFinding {
    /// `0.30 GPU-hours (0.75 EUR) lost`; `None` if its cost was unknown.
    pub fn lost(&self) -> Option<String> {
        let money = self.money.map_or_else(String::new, |money| format!(" ({money})"));
        Some(format!("{:.2} GPU-hours{money} lost", self.gpu_hours?))
    }
}

/// The identity of a finding from one second to the next, whatever its figures.
fn identity(finding: &Finding) -> (Kind, Class, &[Rank]) {
    (finding.kind, finding.class, &finding.ranks)
}

/// Whether more is known of the same fault: what is known of a hang changes while it lasts, and the clock of a slow
/// GPU is read some seconds after its GEMMs.
fn is_another_view(before: &Finding, now: &Finding) -> bool {
    let is_same_fault = match now.kind {
        // Ends of several ranks are noticed one after another.
        Kind::Hang | Kind::Exited => true,
        Kind::SlowRank | Kind::Regression => {
            // A comparison with a past run may be beside a finding of this run.
            let are_past_runs = [before, now].map(|finding| finding.class == Class::PastRun);
            before.ranks == now.ranks && are_past_runs[0] == are_past_runs[1]
        }
        Kind::SlowLink | Kind::Device => false,
    };
    before.kind == now.kind && is_same_fault
}

impl Log {
    /// Updates the log with the present findings. `heard`: the newest report of the job, by the clock of its hosts.
    pub fn follow(&mut self, findings: &[Finding], now: Moment, heard: Moment) {
        let is_there = |known: &Finding| findings.iter().any(|finding| identity(finding) == identity(known));
        for finding in findings {
            let replaced =
                |known: &&mut Present| !is_there(&known.finding) && is_another_view(&known.finding, finding);
            let is_new = self.present(finding).is_none();
            if let Some(before) = self.present.iter_mut().find(replaced).filter(|_| is_new) {
                before.carry_over(finding, now, heard);
                self.push(Entry { at: now, finding: finding.clone(), what: What::Began });
            }
        }
        for gone in self.present.extract_if(.., |present| !is_there(&present.finding)).collect::<Vec<_>>() {
            let what = What::Ended(now.since(gone.began));
            self.push(Entry { at: now, finding: gone.in_total(), what });
        }
        for finding in findings {
            let known = |present: &&mut Present| identity(&present.finding) == identity(finding);
            if let Some(present) = self.present.iter_mut().find(known) {
                present.update(finding, now, heard);
            } else {
                let present = Present::new(finding, now, heard, self.last_end(finding));
                self.push(Entry { at: now, finding: finding.clone(), what: What::Began });
                self.present.push(present);
            }
        }
    }

    /// When a finding about some of these ranks, or about all, last ended: of the same kind, or another one about
    /// longer steps.
    fn last_end(&self, finding: &Finding) -> Moment {
        let slower = |kind| matches!(kind, Kind::SlowRank | Kind::Regression);
        let is_same = |entry: &&Entry| {
            let known = &entry.finding;
            let is_kind = known.kind == finding.kind || (slower(known.kind) && slower(finding.kind));
            let is_of_all = known.ranks.is_empty() || finding.ranks.is_empty();
            let alike = is_of_all || known.ranks.iter().any(|rank| finding.ranks.contains(rank));
            matches!(entry.what, What::Ended(_)) && is_kind && alike
        };
        self.entries().find(is_same).map_or_else(Moment::default, |entry| entry.at)
    }

    fn push(&mut self, entry: Entry) {
        if self.entries.len() == KEPT {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
    }

    /// Newest first.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = &Entry> {
        self.entries.iter().rev()
    }

    /// Ended findings, newest first.
    pub fn ended(&self) -> impl Iterator<Item = EndedFinding> {
        self.entries().filter_map(|Entry { at, finding, what }| {
            let What::Ended(after) = what else { return None };
            let Finding { kind, class, ref ranks, .. } = *finding;
            let ended_at = at.0 as f64 / 1e9;
            let began_at = ended_at - after.as_secs_f64();
            Some(EndedFinding {
                kind,
                class,
                ranks: ranks.clone(),
                began_at,
                ended_at,
                headline: finding.headline(None),
                evidence: finding.evidence.to_string(),
                gpu_hours: finding.cost.map(|cost| cost.gpu_hours),
                money: None,
            })
        })
    }

    /// When it was first seen, by the clock of [`Self::follow`].
    pub fn since(&self, finding: &Finding) -> Option<Moment> {
        self.present(finding).map(|present| present.since)
    }

    /// Adds to these findings what is known of the time before: how long they have been seen, because a rule may
    /// look back less far, and the GPU-hours lost since they began.
    pub fn extend(&self, findings: &mut [Finding], now: Moment, heard: Moment) {
        for finding in findings {
            let before = || self.present.iter().find(|known| is_another_view(&known.finding, finding));
            let Some(known) = self.present(finding).or_else(before) else { continue };
            let gpu_hours = known.gpu_hours(finding, now, heard);
            if let (Some(cost), Some(gpu_hours)) = (&mut finding.cost, gpu_hours) {
                cost.gpu_hours = gpu_hours;
            }
            finding.since_s = finding.since_s.max(now.since(known.since).as_secs_f64());
        }
    }

    fn present(&self, finding: &Finding) -> Option<&Present> {
        self.present.iter().find(|present| identity(&present.finding) == identity(finding))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::{
        Confidence, Evidence, Severity, evidence::hang::Elsewhere, hang::Doing, waited_pct,
    };

    /// A slow rank of two GPUs, which has lasted for some seconds.
    fn slow(rank: u32, pct: f64, since_s: f64) -> Finding {
        Finding {
            kind: Kind::SlowRank,
            class: Class::Host,
            ranks: vec![Rank(rank)],
            confidence: Confidence::Likely,
            severity: Severity::Slow,
            since_s,
            evidence: Evidence::Elsewhere(Elsewhere {
                seen: 2,
                world: 4,
                first: Rank(0),
                doing: Doing::Outside,
                hung_s: since_s,
            }),
            advice: String::new(),
            collective: None,
            cost: Some(Cost::of(pct / 100.0, 0.0, None, 2, since_s)),
        }
    }

    fn at(second: u64) -> Moment {
        Moment(second * 1_000_000_000)
    }

    /// GPU-seconds lost to a finding that is present, by a page that reads the log then.
    fn lost(log: &Log, finding: &Finding, now: u64, heard: u64) -> f64 {
        let mut present = [finding.clone()];
        log.extend(&mut present, at(now), at(heard));
        (present[0].cost.unwrap().gpu_hours * 3600.0 * 1e6).round() / 1e6
    }

    /// When a fault has ended, the cost decreases until the finding ends too. What was lost does not.
    #[test]
    fn an_ended_finding_has_the_figures_of_when_it_cost_most_and_all_that_was_lost() {
        let mut log = Log::default();
        for (seconds, pct, gpu_seconds) in [
            (1..=10, 8.0, 1.6),
            // At first, the newest cost applies to all of the time.
            (11..=41, 10.0, 8.2),
            // From then on, each cost applies until the next.
            (42..=81, 30.0, 31.8),
            (82..=91, 12.0, 34.56),
        ] {
            let until = *seconds.end();
            for second in seconds {
                log.follow(&[slow(1, pct, second as f64)], at(second), at(second));
            }
            assert_eq!(lost(&log, &slow(1, pct, until as f64), until, until), gpu_seconds);
        }
        let finding = slow(1, 1.0, 96.0);
        assert_eq!(lost(&log, &finding, 96, 96), 35.76, "at the cost of the last update");
        log.follow(&[], at(96), at(96));
        let ended: Vec<_> = log.ended().collect();
        assert!(ended.len() == 1 && ended[0].evidence.contains("for 81 s"), "{ended:?}");
        // It was first found at 1, and had lasted for a second then.
        assert_eq!((ended[0].began_at, ended[0].ended_at), (0.0, 96.0));
        assert_eq!(ended[0].lost().as_deref(), Some("0.01 GPU-hours lost"));
        assert!((ended[0].gpu_hours.unwrap() * 3600.0 - 34.56).abs() < 1e-6, "{ended:?}");
    }

    /// A job that has ended, or whose hosts are silent, loses nothing more.
    #[test]
    fn nothing_is_lost_after_the_last_report() {
        let mut log = Log::default();
        let finding = slow(1, 10.0, 40.0);
        log.follow(std::slice::from_ref(&finding), at(40), at(40));
        assert_eq!(lost(&log, &finding, 100, 50), 8.0 + 2.0);
        log.follow(std::slice::from_ref(&finding), at(100), at(50));
        log.follow(std::slice::from_ref(&finding), at(1000), at(50));
        assert_eq!(lost(&log, &finding, 2000, 50), 10.0);
        let aged = Finding { evidence: Evidence::Aged(Box::new(finding.evidence.clone()), 60.0), ..finding };
        log.follow(std::slice::from_ref(&aged), at(1100), at(50));
        assert_eq!(lost(&log, &aged, 2000, 900), 10.0, "others report, its host does not");
        log.follow(&[], at(1200), at(50));
        assert_eq!(log.ended().next().map(|ended| ended.began_at), Some(0.0), "its begin stays");
    }

    #[test]
    fn a_hidden_delay_keeps_what_it_has_cost_before() {
        let mut log = Log::default();
        let seen = slow(1, 10.0, 40.0);
        let hidden = |since_s| Finding {
            cost: slow(1, 10.0, since_s).cost.map(|cost| cost.behind(Rank(3))),
            ..slow(1, 10.0, since_s)
        };
        log.follow(std::slice::from_ref(&seen), at(40), at(40));
        log.follow(&[hidden(45.0)], at(45), at(45));
        assert_eq!(lost(&log, &hidden(60.0), 60, 60), 9.0);
        let mut shown = [hidden(60.0)];
        log.extend(&mut shown, at(60), at(60));
        let cost = shown[0].cost.unwrap();
        assert!(cost.to_string().ends_with("once rank 3 is on time, nothing so far"), "{cost}");
        let more = Cost { gpu_hours: 0.3, ..cost };
        assert!(
            more.to_string().ends_with("rank 3 is on time, nothing now, 0.30 GPU-hours before"),
            "{more}"
        );
        // Its time behind the other does not count once it is no longer hidden.
        log.follow(&[slow(1, 10.0, 60.0)], at(60), at(60));
        assert_eq!(lost(&log, &slow(1, 10.0, 65.0), 65, 65), 9.0 + 1.0);
    }

    #[test]
    fn a_slow_rank_of_which_the_cause_becomes_known_has_not_ended() {
        let mut log = Log::default();
        log.follow(&[slow(1, 10.0, 40.0)], at(40), at(40));
        let clocks = |since_s| Finding { class: Class::Clocks, ..slow(1, 10.0, since_s) };
        log.follow(&[clocks(50.0)], at(50), at(50));
        assert_eq!(log.entries().map(|entry| entry.what).collect::<Vec<_>>(), [What::Began; 2]);
        assert_eq!((log.ended().count(), log.since(&clocks(50.0))), (0, Some(at(40))));
        assert_eq!(lost(&log, &clocks(50.0), 50, 50), 10.0);
        // A page that asks before the log is updated has the same.
        let other_class = Finding { class: Class::Compute, ..slow(1, 10.0, 51.0) };
        assert_eq!(lost(&log, &other_class, 51, 51), 10.2);
        // That of another rank is another fault.
        log.follow(&[clocks(60.0), slow(2, 10.0, 5.0)], at(60), at(60));
        log.follow(&[slow(2, 10.0, 15.0)], at(70), at(70));
        assert_eq!(log.ended().count(), 1);
    }

    /// A fault that is found again, or with another rank, has lost nothing a second time.
    #[test]
    fn what_an_ended_finding_has_lost_is_not_counted_again() {
        let mut log = Log::default();
        log.follow(&[slow(1, 10.0, 40.0)], at(40), at(40));
        log.follow(&[], at(45), at(45));
        let again = Finding { ranks: vec![Rank(1), Rank(2)], ..slow(1, 10.0, 60.0) };
        log.follow(std::slice::from_ref(&again), at(60), at(60));
        assert_eq!(lost(&log, &again, 60, 60), 3.0, "since the end of the other");
        log.follow(&[], at(61), at(61));
        let ended: Vec<_> = log.ended().map(|ended| (ended.began_at, ended.ended_at)).collect();
        assert_eq!(ended, [(45.0, 61.0), (0.0, 45.0)]);
        let steps =
            Finding { kind: Kind::Regression, class: Class::Step, ranks: vec![], ..slow(1, 10.0, 70.0) };
        log.follow(std::slice::from_ref(&steps), at(70), at(70));
        assert_eq!(lost(&log, &steps, 70, 70), 1.8, "longer steps that then have a culprit");
        let other = slow(3, 10.0, 61.0);
        let mut log = Log::default();
        log.follow(&[slow(1, 10.0, 40.0)], at(40), at(40));
        log.follow(&[], at(45), at(45));
        log.follow(std::slice::from_ref(&other), at(61), at(61));
        assert_eq!(lost(&log, &other, 61, 61), 12.2, "of another rank");
    }

    #[test]
    fn others_wait_for_a_slow_rank_as_long_as_it_has_been_slow() {
        let waited = |finding: Finding, ranks| waited_pct(&[finding], ranks).round();
        assert_eq!(waited(slow(1, 60.0, 60.0), 2), 60.0);
        assert_eq!(waited(slow(1, 60.0, 15.0), 2), 30.0, "half of half a minute");
        let uncertain = Cost { pct_error: 10.0, ..slow(1, 60.0, 60.0).cost.unwrap() };
        assert_eq!(waited(Finding { cost: Some(uncertain), ..slow(1, 60.0, 60.0) }, 2), 50.0);
        // A single rank waits for nobody, and most ranks of three are slow.
        assert_eq!(waited(slow(1, 60.0, 60.0), 1), 0.0);
        assert_eq!(waited(Finding { ranks: vec![Rank(0), Rank(1)], ..slow(1, 60.0, 60.0) }, 3), 0.0);
        let hidden = slow(1, 60.0, 60.0).cost.map(|cost| cost.behind(Rank(0)));
        assert_eq!(waited(Finding { cost: hidden, ..slow(1, 60.0, 60.0) }, 2), 0.0);
        assert_eq!(waited(Finding { kind: Kind::Regression, ..slow(1, 60.0, 60.0) }, 2), 0.0);
    }

    #[test]
    fn a_cost_that_becomes_known_later_counts_since_the_fault_began() {
        let mut log = Log::default();
        log.follow(&[Finding { cost: None, ..slow(1, 10.0, 10.0) }], at(10), at(10));
        log.follow(&[slow(1, 10.0, 60.0)], at(60), at(60));
        assert_eq!(lost(&log, &slow(1, 10.0, 60.0), 60, 60), 12.0);
    }
}
