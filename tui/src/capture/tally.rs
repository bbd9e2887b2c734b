//! What each rank has said of a capture, and what is still to come.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::{Duration, Instant};
use xpu_model::{
    finding::{self, Finding},
    job::Job,
    status::RankState,
};
use xpu_wire::{
    frame::{
        Body, CaptureAccount, CaptureEnd, CaptureOrder, CaptureOutcome, CapturePart, Frame, Life,
        MissingRank, Tracing,
    },
    id::{HostName, JobName, Rank, Step},
    unit::Nanoseconds,
};

use super::Progress;
use crate::{figure, follow::Following};

/// What a rank sent before it ended, or its host went out of reach, may still be on its way for so long.
const ON_ITS_WAY: Duration = Duration::from_secs(2);

/// A host that says nothing for so long is gone: it says something every second.
const SILENCE: Duration = Duration::from_secs(6);

/// Ranks named one by one.
const NAMED: usize = 8;

#[derive(Debug)]
pub(super) struct Tally {
    job: JobName,
    order: CaptureOrder,
    ranks: BTreeMap<Rank, State>,
    /// Steps completed, as the furthest rank said.
    furthest: Option<u64>,
    /// When each host was heard last.
    heard: BTreeMap<HostName, Instant>,
}

/// How far a rank is.
#[derive(Clone, Debug, Default)]
struct State {
    agreed: bool,
    late: bool,
    /// Why nothing will come of it.
    refused: Option<String>,
    parts: BTreeSet<u32>,
    expected: Option<u32>,
    account: Option<CaptureAccount>,
    /// Since when it is gone.
    gone: Option<(Instant, String)>,
}

impl State {
    fn is_whole(&self) -> bool {
        self.expected.is_some_and(|expected| self.parts.len() == expected as usize) && self.account.is_some()
    }
}

impl Tally {
    pub(super) fn new(job: JobName, ranks: Vec<Rank>) -> Self {
        let order = CaptureOrder {
            number: 0,
            first: Step(0),
            steps: 0,
            limit: Nanoseconds(0),
            before: 0,
            activity: false,
            functions: false,
        };
        let ranks = ranks.into_iter().map(|rank| (rank, State::default())).collect();
        Self { job, order, ranks, furthest: None, heard: BTreeMap::new() }
    }

    pub(super) fn begin(&mut self, order: CaptureOrder) {
        self.order = order;
        self.ranks.values_mut().for_each(|state| *state = State::default());
    }

    pub(super) fn job(&self) -> &JobName {
        &self.job
    }

    pub(super) fn order(&self) -> CaptureOrder {
        self.order
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

    /// Whether the frame belongs into the file.
    pub(super) fn keeps(&self, frame: &Frame) -> bool {
        match &frame.body {
            Body::CaptureAnswer(answer) => answer.number == self.order.number,
            Body::CapturePart(part) => part.number == self.order.number,
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
                        state.refused = Some(format!("it had already completed step {}", answer.completed));
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
                        state.refused =
                            Some("it has not completed a step yet; try again when it trains".to_owned());
                    }
                }
            }
            Body::CapturePart(part) if part.number == self.order.number => self.take_part(part),
            _ => {}
        }
    }

    fn take_part(&mut self, part: &CapturePart) {
        let Some(state) = self.ranks.get_mut(&part.rank) else { return };
        state.agreed = true;
        state.expected = Some(part.parts);
        let is_new = part.part < part.parts && state.parts.insert(part.part);
        if let Some(account) = part.account.as_ref().filter(|_| is_new) {
            state.account = Some(account.clone());
        }
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

    /// What the job stands for, if none of the ranks that are asked goes on.
    pub(super) fn standstill<'a>(&self, job: &Job, findings: &'a [Finding]) -> Option<&'a Finding> {
        let mut asked = job.ranks().filter(|(rank, view)| self.wants(*rank) && view.is_alive());
        let stands = asked.all(|(rank, view)| {
            !matches!(finding::state(findings, rank, view), RankState::Ok | RankState::Slow)
        });
        findings.iter().find(|finding| stands && finding.stops_the_job())
    }

    /// Who may still send something.
    pub(super) fn awaited(&self) -> Vec<Rank> {
        let awaited = self.ranks.iter().filter(|(_, state)| !state.is_whole() && state.refused.is_none());
        awaited.map(|(&rank, _)| rank).collect()
    }

    /// From now on no step is waited for.
    pub(super) fn hurry(&mut self) -> CaptureOrder {
        self.order.limit = Nanoseconds(0);
        self.order
    }

    /// Whether nothing more is to come.
    pub(super) fn is_over(&self) -> bool {
        self.ranks.values().all(|state| {
            let gone = state.gone.as_ref().is_some_and(|(since, _)| since.elapsed() >= ON_ITS_WAY);
            state.is_whole() || state.refused.is_some() || gone
        })
    }

    /// Sees who is gone.
    pub(super) fn look(&mut self, following: &Following, now: Instant) {
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

    /// Nothing more is waited for: who has not sent all is missing.
    pub(super) fn give_up(&mut self) {
        for state in self.ranks.values_mut() {
            if state.is_whole() || state.refused.is_some() {
                continue;
            }
            let (gone, came) = (state.gone.take().map(|(_, why)| why), state.parts.len());
            state.refused = Some(match (gone, state.expected, state.agreed) {
                (Some(why), None, _) => format!("{why} before it had recorded all steps"),
                (why, Some(expected), _) => {
                    let why = why.unwrap_or_else(|| "the rest did not arrive in time".to_owned());
                    format!("{came} of {expected} parts arrived: {why}")
                }
                (None, None, true) => {
                    "it agreed and sent nothing in time: it may hang, or its steps take longer; allow more with --wait"
                        .to_owned()
                }
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

    /// Whether anything came that was recorded.
    pub(super) fn has_parts(&self) -> bool {
        self.ranks.values().any(|state| !state.parts.is_empty())
    }

    /// Ranks of which all is there.
    pub(super) fn whole(&self) -> usize {
        self.ranks.values().filter(|state| state.is_whole()).count()
    }

    pub(super) fn progress(&self) -> Progress {
        Progress {
            first: self.order.first,
            last: self.order.last(),
            ranks: self.ranks.len(),
            agreed: self.ranks.values().filter(|state| state.agreed).count(),
            whole: self.whole(),
        }
    }

    /// Those of them that came to the last step.
    pub(super) fn done(&self) -> usize {
        self.accounts().filter(|(_, account)| account.ended == CaptureEnd::Done).count()
    }

    fn accounts(&self) -> impl Iterator<Item = (Rank, &CaptureAccount)> {
        let whole = self.ranks.iter().filter(|(_, state)| state.is_whole());
        whole.filter_map(|(&rank, state)| Some((rank, state.account.as_ref()?)))
    }

    /// What is not as it should be; of a job that stands, what for.
    pub(super) fn complaints(&self, standstill: Option<&str>) -> Vec<String> {
        let mut all: Vec<_> =
            standstill.iter().map(|evidence| format!("the job hangs: {evidence}")).collect();
        all.extend(
            self.missing().into_iter().map(|missing| format!("rank {}: {}", missing.rank, missing.why)),
        );
        for (rank, account) in self.accounts() {
            match account.ended {
                CaptureEnd::Done => {}
                // Why is said once, for all.
                CaptureEnd::TimeUp if standstill.is_some() => {}
                CaptureEnd::TimeUp => {
                    all.push(format!("rank {rank}: it did not reach the last step in time"));
                }
                CaptureEnd::ProcessEnd => all.push(format!("rank {rank}: it ended before the last step did")),
            }
            if let Tracing::Recorded { dropped: lost @ 1.., .. } = account.activity {
                all.push(format!("rank {rank}: {lost} of CUPTI's records were lost"));
            }
            if account.dropped > 0 {
                all.push(format!(
                    "rank {rank}: {} operations were dropped for lack of space",
                    account.dropped
                ));
            }
        }
        all.extend(self.refusals());
        let more = all.len().saturating_sub(NAMED);
        all.truncate(NAMED);
        if more > 0 {
            all.push(format!("and {more} more; `xpu-top report` lists all"));
        }
        all
    }

    /// What was asked for besides and could not be had, the ranks of one reason together.
    fn refusals(&self) -> impl Iterator<Item = String> {
        let mut all: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
        // Who has ended no step has begun with none of it, and why is said already.
        for (rank, account) in self.accounts().filter(|(_, account)| account.marks.len() > 1) {
            let kinds = [("kernels", &account.activity), ("functions of Python", &account.functions)];
            for (what, tracing) in kinds {
                if let Tracing::Refused { why } = tracing {
                    all.entry((what, why)).or_default().push(rank.to_string());
                }
            }
        }
        all.into_iter().map(|((what, why), ranks)| {
            let word = if ranks.len() == 1 { "rank" } else { "ranks" };
            format!("{word} {} without all {what}: {why}", ranks.join(","))
        })
    }

    /// `steps 812 to 814 of 8 of 8 ranks, with what was sampled since step 793, 2,160 operations, none dropped`
    pub(super) fn summary(&self) -> String {
        let operations = self.accounts().map(|(_, account)| account.operations).sum::<u64>();
        let dropped = self.accounts().map(|(_, account)| account.dropped).sum::<u64>();
        let ranks = format!("{} of {}", self.whole(), figure::counted(self.ranks.len(), "rank", "ranks"));
        format!(
            "{}{}, {}, {}",
            self.steps(&ranks),
            self.sampled(),
            figure::counted(operations as usize, "operation", "operations"),
            if dropped == 0 { "none dropped".to_owned() } else { format!("{dropped} dropped") },
        )
    }

    /// The steps that were asked for, as far as all have them who sent anything.
    fn steps(&self, ranks: &str) -> String {
        let (first, last) = (self.order.first, self.order.last());
        let ends =
            self.accounts().map(|(_, account)| account.marks.last().map_or(Step(0), |mark| mark.completed));
        match ends.min() {
            Some(end) if end < first => {
                format!(
                    "{ranks} ended no step after {end}, and none of {first} to {last} that were asked for"
                )
            }
            Some(end) => format!("steps {first} to {} of {ranks}", end.min(last)),
            None => format!("steps {first} to {last} of {ranks}"),
        }
    }

    /// Of which steps before those there is something.
    fn sampled(&self) -> String {
        let begins = |account: &CaptureAccount| account.marks.first().map(|mark| mark.completed);
        let sampled = self.accounts().filter(|(_, account)| account.sampled > begins(account));
        // The first mark is the begin of the first step.
        match sampled.filter_map(|(_, account)| account.marks.first()).map(|mark| mark.completed.0 + 1).max()
        {
            Some(since) => format!(", with what was sampled since step {since}"),
            None => String::new(),
        }
    }
}
