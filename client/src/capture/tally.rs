//! Each rank's answers to a capture, and the data that is outstanding.

mod words;

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::{Duration, Instant};
use xpu_model::{
    finding::{self, Finding},
    job::Job,
    status::RankState,
};
use xpu_wire::{
    frame::{
        Body, CaptureAccount, CaptureEnd, CaptureOrder, CaptureOutcome, CaptureWindow, Frame, Life,
        MissingRank,
    },
    id::{HostName, JobName, Rank},
    unit::{Moment, Nanoseconds},
};

use super::{Extent, Progress, start_point::NO_STEPS};
use crate::follow::Following;

/// How long data may be on its way after its rank ended or its host became unreachable.
const ON_ITS_WAY: Duration = Duration::from_secs(2);

/// A host that is silent for this long is gone: hosts send every second.
const SILENCE: Duration = Duration::from_secs(6);

/// Why a rank that was asked for a period sends nothing.
const NO_ANSWER: &str = "it did not answer: it is stopped or gone (`xpu-top status`), or its hook or collector is older and captures \
     only steps (--steps)";

#[derive(Debug)]
pub(super) struct Tally {
    job: JobName,
    order: CaptureOrder,
    /// A period instead of steps.
    window: Option<CaptureWindow>,
    ranks: BTreeMap<Rank, State>,
    /// Steps completed by the furthest rank.
    furthest: Option<u64>,
    /// When each host last reported.
    heard: BTreeMap<HostName, Instant>,
}

/// A rank's progress.
#[derive(Clone, Debug, Default)]
struct State {
    agreed: bool,
    late: bool,
    /// Why the rank will send nothing.
    refused: Option<String>,
    parts: BTreeSet<u32>,
    expected: Option<u32>,
    account: Option<CaptureAccount>,
    /// When the rank was lost, and why.
    gone: Option<(Instant, String)>,
}

impl State {
    fn is_whole(&self) -> bool {
        self.expected.is_some_and(|expected| self.parts.len() == expected as usize) && self.account.is_some()
    }
}

impl Tally {
    pub(super) fn new(job: JobName, ranks: Vec<Rank>) -> Self {
        let ranks = ranks.into_iter().map(|rank| (rank, State::default())).collect();
        Self {
            job,
            order: CaptureOrder::default(),
            window: None,
            ranks,
            furthest: None,
            heard: BTreeMap::new(),
        }
    }

    pub(super) fn begin(&mut self, order: CaptureOrder, window: Option<CaptureWindow>) {
        (self.order, self.window) = (order, window);
        self.ranks.values_mut().for_each(|state| *state = State::default());
    }

    pub(super) fn job(&self) -> &JobName {
        &self.job
    }

    pub(super) fn order(&self) -> CaptureOrder {
        self.order
    }

    pub(super) fn window(&self) -> Option<CaptureWindow> {
        self.window
    }

    /// The longest period that a rank recorded, which is shorter than the requested one if all ranks ended
    /// early. `None` for steps, and if no rank sent its data.
    pub(super) fn recorded(&self) -> Option<Nanoseconds> {
        self.window?;
        self.accounts().filter_map(|(_, account)| took(account)).max()
    }

    /// Whether a hung job's recording needs no more time: its period is over, or it awaits steps, which never
    /// complete.
    pub(super) fn is_past(&self, now: Moment) -> bool {
        self.window.is_none_or(|window| now > window.end().after(ON_ITS_WAY))
    }

    pub(super) fn ranks(&self) -> impl Iterator<Item = Rank> {
        self.ranks.keys().copied()
    }

    pub(super) fn wants(&self, rank: Rank) -> bool {
        self.ranks.contains_key(&rank)
    }

    pub(super) fn furthest(&self) -> Option<u64> {
        self.furthest
    }

    /// Whether the frame belongs in the file.
    pub(super) fn keeps(&self, frame: &Frame) -> bool {
        match &frame.body {
            Body::CaptureAnswer(answer) => answer.number == self.order.number,
            Body::CapturePart(part) => part.number == self.order.number,
            Body::Functions(of) => of.number == self.order.number,
            _ => true,
        }
    }

    pub(super) fn take(&mut self, frame: &Frame) {
        self.heard.insert(frame.host.clone(), Instant::now());
        match &frame.body {
            Body::CaptureAnswer(answer) if answer.number == self.order.number => {
                self.furthest = self.furthest.max(Some(answer.completed.0));
                let Some(state) = self.ranks.get_mut(&answer.rank) else { return };
                state.refused = None;
                match answer.outcome {
                    CaptureOutcome::Agreed => state.agreed = true,
                    CaptureOutcome::TooLate => {
                        state.late = true;
                        state.refused = Some(match self.window {
                            Some(_) => "the request arrived after the window began: check its host's clock and CPU load".to_owned(),
                            None => format!("it had already completed step {}", answer.completed),
                        });
                    }
                    CaptureOutcome::Busy => {
                        state.refused =
                            Some("another capture is running there; try again when it has ended".to_owned());
                    }
                    CaptureOutcome::Off => {
                        state.refused =
                            Some("its hook is off; switch it on with `xpu-top ctl --hook on`".to_owned());
                    }
                    CaptureOutcome::NoSteps => {
                        state.refused = Some(NO_STEPS.to_owned());
                    }
                }
            }
            Body::CapturePart(part) if part.number == self.order.number => {
                self.take_part(part.rank, [part.part, part.parts], part.account.as_ref());
            }
            Body::Functions(of) if of.number == self.order.number => {
                self.take_part(of.rank, [0, 1], Some(&of.account));
            }
            _ => {}
        }
    }

    fn take_part(&mut self, rank: Rank, [part, parts]: [u32; 2], account: Option<&CaptureAccount>) {
        let Some(state) = self.ranks.get_mut(&rank) else { return };
        state.agreed = true;
        state.expected = Some(parts);
        let is_new = part < parts && state.parts.insert(part);
        if let Some(account) = account.filter(|_| is_new) {
            state.account = Some(account.clone());
        }
    }

    /// Ranks that sent something.
    pub(super) fn sending(&self) -> impl Iterator<Item = Rank> {
        self.ranks.iter().filter(|(_, state)| state.expected.is_some()).map(|(&rank, _)| rank)
    }

    pub(super) fn refuse_all(&mut self, why: &str) {
        self.ranks.values_mut().for_each(|state| state.refused = Some(why.to_owned()));
    }

    pub(super) fn is_any_late(&self) -> bool {
        self.ranks.values().any(|state| state.late)
    }

    pub(super) fn unanswered(&self) -> Vec<Rank> {
        let silent = |state: &&State| !state.agreed && state.refused.is_none() && state.gone.is_none();
        self.ranks.iter().filter(|(_, state)| silent(state)).map(|(&rank, _)| rank).collect()
    }

    pub(super) fn is_answered(&self) -> bool {
        self.unanswered().is_empty()
    }

    /// Why the job hangs, if none of the requested ranks continues.
    pub(super) fn stall<'a>(&self, job: &Job, findings: &'a [Finding]) -> Option<&'a Finding> {
        let mut asked = job.ranks().filter(|(rank, view)| self.wants(*rank) && view.is_alive());
        let is_stuck = asked.all(|(rank, view)| {
            !matches!(finding::state(findings, rank, view), RankState::Ok | RankState::Slow)
        });
        findings.iter().find(|finding| is_stuck && finding.stops_the_job())
    }

    /// Ranks that may still send something.
    pub(super) fn awaited(&self) -> Vec<Rank> {
        let awaited = self.ranks.iter().filter(|(_, state)| !state.is_whole() && state.refused.is_none());
        awaited.map(|(&rank, _)| rank).collect()
    }

    /// Stops waiting for steps.
    pub(super) fn end_early(&mut self) {
        self.order.limit = Nanoseconds(0);
    }

    /// Whether everything has arrived.
    pub(super) fn is_over(&self) -> bool {
        self.ranks.values().all(|state| {
            let gone = state.gone.as_ref().is_some_and(|(since, _)| since.elapsed() >= ON_ITS_WAY);
            state.is_whole() || state.refused.is_some() || gone
        })
    }

    /// Finds ranks that are gone.
    pub(super) fn look(&mut self, following: &Following, now: Instant) {
        if self.window.is_some() && self.is_past(Moment::now()) {
            // A rank that has not received the order by now has no data.
            for state in self.ranks.values_mut().filter(|state| !state.agreed && state.gone.is_none()) {
                state.refused.get_or_insert_with(|| NO_ANSWER.to_owned());
            }
        }
        let Some(job) = following.jobs().get(&self.job) else { return };
        for (rank, state) in &mut self.ranks {
            let Some(view) = job.rank(*rank) else { continue };
            let host = view.host();
            let heard = self.heard.get(host).map_or(now, |heard| *heard);
            let why = match view.life() {
                Life::Died => Some("it died".to_owned()),
                Life::Ended => Some("it ended".to_owned()),
                _ if now.duration_since(heard) >= SILENCE => Some(format!(
                    "its host {host} stopped reporting; `xpu-top status` shows whether its collector runs"
                )),
                _ => None,
            };
            match why {
                Some(why) if state.gone.is_none() => state.gone = Some((now, why)),
                None => state.gone = None,
                Some(_) => {}
            }
        }
    }

    /// Ends the wait: ranks without complete data count as missing.
    pub(super) fn give_up(&mut self) {
        for state in self.ranks.values_mut() {
            if state.is_whole() || state.refused.is_some() {
                continue;
            }
            let (gone, came) = (state.gone.take().map(|(_, why)| why), state.parts.len());
            state.refused = Some(match (gone, state.expected, state.agreed) {
                (Some(why), None, _) if self.window.is_some() => {
                    format!("{why} before it had recorded the whole period")
                }
                (Some(why), None, _) => format!("{why} before it had recorded all steps"),
                (why, Some(expected), _) => {
                    let why = why.unwrap_or_else(|| "the rest did not arrive in time".to_owned());
                    format!("{came} of {expected} parts arrived: {why}")
                }
                (None, None, true) if self.window.is_some() => {
                    "it agreed but sent nothing in time: it may hang; allow more with --wait".to_owned()
                }
                (None, None, true) => {
                    "it agreed but sent nothing in time: it may hang, or its steps take longer; allow more with --wait"
                        .to_owned()
                }
                (None, None, false) if self.window.is_some() => NO_ANSWER.to_owned(),
                (None, None, false) => {
                    "it did not answer; `xpu-top status` shows whether it runs".to_owned()
                }
            });
        }
    }

    pub(super) fn missing(&self) -> Vec<MissingRank> {
        let missing = self.ranks.iter().filter(|(_, state)| !state.is_whole());
        let why = |state: &State| state.refused.clone().unwrap_or_default();
        missing.map(|(&rank, state)| MissingRank { rank, why: why(state) }).collect()
    }

    /// Whether any recorded data arrived.
    pub(super) fn has_parts(&self) -> bool {
        self.ranks.values().any(|state| !state.parts.is_empty())
    }

    /// Ranks with complete data.
    pub(super) fn whole(&self) -> usize {
        self.ranks.values().filter(|state| state.is_whole()).count()
    }

    pub(super) fn progress(&self) -> Progress {
        Progress {
            of: Extent::of(self.order, self.window),
            ranks: self.ranks.len(),
            agreed: self.ranks.values().filter(|state| state.agreed).count(),
            whole: self.whole(),
        }
    }

    /// Ranks with complete data that reached the last step.
    pub(super) fn done(&self) -> usize {
        self.accounts().filter(|(_, account)| account.ended == CaptureEnd::Done).count()
    }

    /// Complete ranks with their accounts.
    fn accounts(&self) -> impl Iterator<Item = (Rank, &CaptureAccount)> {
        let whole = self.ranks.iter().filter(|(_, state)| state.is_whole());
        whole.filter_map(|(&rank, state)| Some((rank, state.account.as_ref()?)))
    }
}

/// The period that a rank recorded.
fn took(account: &CaptureAccount) -> Option<Nanoseconds> {
    match &account.marks[..] {
        [begin, end, ..] => Some(Nanoseconds::from(end.at.since(begin.at))),
        _ => None,
    }
}
