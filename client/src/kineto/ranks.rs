//! The requested ranks, and the state of each one's Kineto.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tokio::time::Instant;
use xpu_wire::{
    frame::{KinetoRank, KinetoStanding},
    id::{HostName, Rank},
    ledger::KinetoCount,
    unit::Nanoseconds,
};

/// Steps needed to measure a step's duration, and Kineto's count per step.
const STEPS_SEEN: u64 = 3;

#[derive(Debug, Default)]
pub(super) struct One {
    pub host: Option<HostName>,
    pub reported: Option<KinetoRank>,
    /// Kineto's count when it was first read, and the time.
    first: Option<(KinetoCount, Instant)>,
    last: Option<(KinetoCount, Instant)>,
    /// Longest time between two polls of its Kineto.
    pub every: Option<Duration>,
    /// Whether the rank was given up.
    given_up: bool,
}

#[derive(Debug)]
pub(super) struct Ranks {
    all: BTreeMap<Rank, One>,
    /// The current order; 0 before there is one.
    number: u64,
}

impl Ranks {
    pub(super) fn new(ranks: &[Rank]) -> Self {
        Self { all: ranks.iter().map(|&rank| (rank, One::default())).collect(), number: 0 }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Rank, &One)> {
        self.all.iter().map(|(&rank, one)| (rank, one))
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn all(&self) -> Vec<Rank> {
        self.all.keys().copied().collect()
    }

    /// From now on only answers to this order count.
    pub(super) fn expect(&mut self, number: u64) {
        self.number = number;
    }

    pub(super) fn expects(&self, number: u64) -> bool {
        self.number == number
    }

    pub(super) fn hear(&mut self, host: &HostName, reported: &KinetoRank) {
        let Some(one) = self.all.get_mut(&reported.rank).filter(|_| reported.number == self.number) else {
            return;
        };
        // A final state stays: an earlier answer that arrives after it changes nothing.
        if self.number > 0
            && one
                .reported
                .as_ref()
                .is_some_and(|known| known.number == self.number && known.standing.is_last())
        {
            return;
        }
        one.host = Some(host.clone());
        if let Some(count) = reported.count {
            let now = Instant::now();
            let began_anew = one.last.is_some_and(|(last, _)| last.step > count.step);
            if one.first.is_none() || began_anew {
                one.first = Some((count, now));
            }
            one.last = Some((count, now));
        }
        let every = reported.every.map(|every| Duration::from_nanos(every.0));
        one.every = one.every.max(every);
        one.reported = Some(reported.clone());
    }

    fn standing(&self, one: &One) -> Option<KinetoStanding> {
        one.reported
            .as_ref()
            .filter(|reported| reported.number == self.number)
            .map(|reported| reported.standing.clone())
    }

    pub(super) fn are_all_registered(&self) -> bool {
        self.all.values().all(|one| {
            self.standing(one)
                .is_some_and(|standing| !matches!(standing, KinetoStanding::Unregistered { .. }))
        })
    }

    pub(super) fn with_kineto(&self) -> usize {
        let has = |one: &&One| {
            one.reported
                .as_ref()
                .is_some_and(|reported| !matches!(reported.standing, KinetoStanding::Unregistered { .. }))
        };
        self.all.values().filter(has).count()
    }

    /// Ranks whose result is still open.
    pub(super) fn open(&self) -> Vec<Rank> {
        let is_open =
            |one: &One| !one.given_up && self.standing(one).is_none_or(|standing| !standing.is_last());
        self.all.iter().filter(|(_, one)| is_open(one)).map(|(&rank, _)| rank).collect()
    }

    pub(super) fn are_all_settled(&self) -> bool {
        self.open().is_empty()
    }

    /// Gives up hosts that did not answer the order.
    pub(super) fn give_up_unheard(&mut self) {
        let number = self.number;
        for one in self.all.values_mut() {
            one.given_up |= one.reported.as_ref().is_none_or(|reported| reported.number != number);
        }
    }

    /// The last step that any rank has completed.
    pub(super) fn furthest(&self) -> Option<u64> {
        self.counts().map(|(count, _)| count.step.0).max()
    }

    fn counts(&self) -> impl Iterator<Item = (KinetoCount, Instant)> {
        self.all.values().filter_map(|one| one.last)
    }

    /// Whether every rank with a Kineto counts steps; otherwise, the request must be for a period.
    pub(super) fn all_count(&self) -> bool {
        let can = |one: &&One| {
            one.reported
                .as_ref()
                .is_some_and(|reported| !matches!(reported.standing, KinetoStanding::Unregistered { .. }))
        };
        self.with_kineto() > 0 && self.all.values().filter(can).all(|one| one.last.is_some())
    }

    fn seen(&self) -> impl Iterator<Item = (u64, u32, Duration)> {
        self.all.values().filter_map(|one| {
            let ((first, begun), (last, ended)) = (one.first?, one.last?);
            let steps = last.step.0.checked_sub(first.step.0).filter(|&steps| steps > 0)?;
            Some((steps, last.counted.checked_sub(first.counted)?, ended - begun))
        })
    }

    pub(super) fn is_pace_known(&self) -> bool {
        self.seen().any(|(steps, _, _)| steps >= STEPS_SEEN)
    }

    pub(super) fn step_time(&self) -> Option<Nanoseconds> {
        let times =
            self.seen().filter_map(|(steps, _, took)| u32::try_from(steps).ok().map(|steps| took / steps));
        times.min().map(Nanoseconds::from)
    }

    /// Kineto's calls per step, from the rank with most steps so far. `None` if the figure is not a whole
    /// number: then some steps have more calls than others, and equal counts mean different steps.
    pub(super) fn calls(&self) -> Option<u32> {
        let Some((steps, calls, _)) = self.seen().max_by_key(|(steps, _, _)| *steps) else { return Some(1) };
        let calls = u64::from(calls);
        let each = ((calls + steps / 2) / steps).clamp(1, 1 << 10);
        // A step is counted at its first call, so its other calls may be missing at one end.
        (calls.abs_diff(each * steps) < each).then_some(each as u32)
    }

    /// Longest time between two polls of any Kineto.
    pub(super) fn every(&self) -> Option<Duration> {
        self.all.values().filter_map(|one| one.every).max()
    }

    /// Whether all have polled twice, so that their interval is known.
    pub(super) fn is_every_known(&self) -> bool {
        let silent: BTreeSet<_> =
            self.open().into_iter().filter(|rank| self.all[rank].every.is_none()).collect();
        silent.is_empty()
    }

    /// A rank's state in a word, and the reason.
    pub(super) fn word(&self, one: &One) -> (&'static str, Option<String>) {
        match self.standing(one) {
            None => {
                let why = "its host did not answer: its collector is older than this xpu-top, or unreachable";
                ("unheard", Some(why.to_owned()))
            }
            Some(KinetoStanding::Unregistered { why }) => ("no_kineto", Some(why)),
            Some(KinetoStanding::Refused { why }) => ("refused", Some(why)),
            Some(KinetoStanding::Written { .. }) => ("written", None),
            Some(KinetoStanding::Started) => {
                ("started", Some("it had not written its trace in time".to_owned()))
            }
            Some(KinetoStanding::Instructed) => {
                ("instructed", Some("it received the request but did not begin in time".to_owned()))
            }
            Some(KinetoStanding::Idle | KinetoStanding::Busy | KinetoStanding::Asked) => {
                ("asked", Some("its Kineto had not polled in time".to_owned()))
            }
        }
    }

    /// The progress of all ranks.
    pub(super) fn line(&self, here: usize) -> String {
        let mut counts = BTreeMap::new();
        for one in self.all.values() {
            let (place, word) = match self.standing(one) {
                None | Some(KinetoStanding::Idle | KinetoStanding::Busy | KinetoStanding::Asked) => {
                    (0, "asked")
                }
                Some(KinetoStanding::Instructed) => (1, "instructed"),
                Some(KinetoStanding::Started) => (2, "tracing"),
                Some(KinetoStanding::Written { .. }) => (3, "written"),
                Some(KinetoStanding::Refused { .. }) => (4, "refused"),
                Some(KinetoStanding::Unregistered { .. }) => (5, "without Kineto"),
            };
            *counts.entry((place, word)).or_insert(0) += 1;
        }
        let counts = counts.into_iter().map(|((_, word), count)| format!("{count} {word}"));
        let fetched = (here > 0).then(|| format!("{here} here"));
        counts.chain(fetched).collect::<Vec<_>>().join(", ")
    }
}
