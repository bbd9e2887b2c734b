//! The content of a capture file, assembled from its frames, and the results: clocks, intervals, a report.
//!
//! Frames are untrusted: no value is used as an index or a size beyond the data that came with it.

mod clock;
mod diff;
mod groups;
pub mod kernel;
mod lane;
mod matched;
mod per;
mod report;
mod sampled;
mod spans;
mod standalone;
mod whole;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

pub(crate) use clock::{ends_together, offsets_of};
use serde::Serialize;
use xpu_wire::{
    collective::Operation,
    frame::{
        Body, CaptureAccount, CapturePart, CaptureSheet, CaptureWindow, CapturedLabel, CapturedOperation,
        CapturedSpan, CommunicatorState, Frame, RankDigest, RankFunctions, RankSnapshot, StepMark,
    },
    id::{CommunicatorId, HostName, JobName, Pid, Rank, Sequence, Step},
    unit::Moment,
};

pub use clock::Clocks;
pub use diff::{Change, CostKind, Culprit, Diff, Side};
pub use groups::{Groups, Only};
pub use lane::Lane;
pub use matched::{MatchedCollective, MatchedCollectives, Participation};
pub use per::Per;
pub use report::{
    ArrivalRow, CollectiveRow, CopyRow, FunctionRow, Gaps, GemmRow, HostKind, HostRow, KernelRow, Kinds,
    NOISE_NS, Pace, PythonRank, PythonReport, RankReport, Report, ShapeText, SlowKind, SlowRow, Spread,
    StepReport, Summary, WindowReport, bucket, copied, host_function, python_place, transposed,
};
pub(crate) use report::{gemm_shape, role};
pub use sampled::{Sampled, Stack};
pub use spans::{Spans, union};
pub use standalone::{Alone, RankRate, RankRow, ShapeGemms, ShapeRow, Standalone, StandsOut, Total};
pub use whole::{Seen, WholeStep, Work};

/// One capture.
#[derive(Clone, Debug, Default)]
pub struct Capture {
    pub sheet: Option<CaptureSheet>,
    /// The period that it covers instead of steps. Each rank then has one interval, the first.
    pub window: Option<CaptureWindow>,
    pub ranks: BTreeMap<Rank, RankCapture>,
    /// What ranks spent their steps on, if their collectors sent only that.
    pub functions: BTreeMap<Rank, RankFunctions>,
    /// Python's stacks of the ranks on which they were sampled.
    pub sampled: BTreeMap<Rank, Sampled>,
    /// The collectors' reports about the job during the capture.
    pub world_size: Option<u32>,
    pub pids: BTreeMap<Rank, Pid>,
    pub communicators: BTreeMap<CommunicatorId, CapturedCommunicator>,
    /// The steps that each rank had completed, and when it had completed the last of them.
    progress: BTreeMap<Rank, Vec<(Step, Moment)>>,
    number: Option<u64>,
}

/// A communicator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedCommunicator {
    /// The program's name for it; empty if it has none.
    pub name: String,
    pub size: u32,
    /// The ranks of the job, by their numbers in the communicator, as far as they have reported.
    pub members: BTreeMap<u32, Rank>,
}

/// One rank's data.
#[derive(Clone, Debug, Default)]
pub struct RankCapture {
    pub host: HostName,
    pub account: CaptureAccount,
    /// In the order of their launch.
    pub operations: Vec<Single>,
    /// Parts that did not arrive.
    pub parts_missing: u32,
    came: BTreeSet<u32>,
    parts: u32,
}

/// One operation, at a time by its own host's clock.
#[derive(Clone, Debug)]
pub struct Single {
    pub at: Moment,
    pub label: Arc<CapturedLabel>,
    pub thread: u32,
    pub sequence: Option<Sequence>,
    /// The other rank of a send or receive, by its number in the communicator, if it is known.
    pub peer: Option<u32>,
    pub span: CapturedSpan,
}

/// Kinds of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Gemm,
    Collective,
    PointToPoint,
    /// The launch of several operations as one.
    Group,
    Graph,
    Kernel,
    Copy,
    Set,
    Blocked,
    ActivityKernel,
    /// Python functions.
    Function,
}

impl Single {
    pub fn kind(&self) -> Kind {
        match &*self.label {
            CapturedLabel::Gemm(_) => Kind::Gemm,
            CapturedLabel::Collective { operation, .. } if operation.is_collective() => Kind::Collective,
            CapturedLabel::Collective { .. } => Kind::PointToPoint,
            CapturedLabel::Group { .. } => Kind::Group,
            CapturedLabel::Graph(_) => Kind::Graph,
            CapturedLabel::Kernel(_) => Kind::Kernel,
            CapturedLabel::Copy { .. } => Kind::Copy,
            CapturedLabel::Set { .. } => Kind::Set,
            CapturedLabel::Blocked(_) => Kind::Blocked,
            CapturedLabel::Activity(_) => Kind::ActivityKernel,
            CapturedLabel::Function { .. } => Kind::Function,
        }
    }

    /// Whether its time of launch is unknown, as for CUPTI's kernels.
    pub fn is_launch_unknown(&self) -> bool {
        matches!(*self.label, CapturedLabel::Activity(_))
    }

    /// Its start and end on the GPU, by its host's clock.
    pub fn on_gpu(&self) -> Option<(Moment, Moment)> {
        let CapturedSpan::Gpu { late, took, .. } = self.span else { return None };
        let begin = self.at.0.saturating_add_signed(late);
        Some((Moment(begin), Moment(begin.saturating_add(took.0))))
    }

    /// Start and end of the time in which it blocked a thread that waited for the GPU.
    pub(crate) fn held(&self) -> Option<(Moment, Moment)> {
        let CapturedSpan::Host { took } = self.span else { return None };
        let waits = matches!(self.kind(), Kind::Blocked | Kind::Copy | Kind::Set);
        waits.then(|| (self.at, Moment(self.at.0.saturating_add(took.0))))
    }

    /// The collective's identity, equal on all ranks, if all ranks end in it at nearly the same time.
    pub fn collective_id(&self) -> Option<CollectiveId> {
        let sequence = self.sequence?;
        match *self.label {
            CapturedLabel::Collective { communicator, operation, .. } if operation.is_collective() => {
                Some(CollectiveId { communicator, sequence, operation })
            }
            CapturedLabel::Group { communicator, operation, collectives, .. } if collectives > 0 => {
                Some(CollectiveId { communicator, sequence, operation })
            }
            _ => None,
        }
    }
}

/// The values that are equal on all ranks of one collective.
#[derive(Clone, Copy, Debug)]
pub struct CollectiveId {
    pub communicator: CommunicatorId,
    pub sequence: Sequence,
    pub operation: Operation,
}

impl Capture {
    pub fn take(&mut self, frame: &Frame) {
        if let Some((sheet, window)) = frame.body.as_capture_sheet() {
            // The last sheet counts: earlier ones belong to abandoned attempts.
            if self.number != Some(sheet.order.number) {
                self.ranks.clear();
                self.functions.clear();
                self.sampled.clear();
                // The sheet at the end has the recorded period, which may be shorter.
                self.window = window;
            }
            self.number = Some(sheet.order.number);
            self.sheet = Some(sheet.clone());
        }
        match &frame.body {
            Body::CapturePart(part) if *self.number.get_or_insert(part.number) == part.number => {
                let rank = self.ranks.entry(part.rank).or_default();
                rank.host.clone_from(&frame.host);
                rank.take(part);
            }
            Body::Functions(of) if *self.number.get_or_insert(of.number) == of.number => {
                self.functions.insert(of.rank, of.clone());
            }
            Body::PythonSamples(part) if *self.number.get_or_insert(part.number) == part.number => {
                self.sampled.entry(part.rank).or_default().take(part);
            }
            Body::Digest(digest) if self.is_of(&digest.job) => {
                digest.ranks.iter().for_each(|of| self.read_digest(of));
            }
            Body::Snapshot(snapshot) => {
                let jobs = snapshot.jobs.iter().filter(|job| self.is_of(&job.job));
                let ranks: Vec<_> = jobs.flat_map(|job| &job.ranks).collect();
                for RankSnapshot { earlier, digest, .. } in ranks {
                    for past in earlier {
                        self.advance(digest.rank, past.step, past.step_at);
                    }
                    self.read_digest(digest);
                }
            }
            _ => {}
        }
    }

    fn is_of(&self, job: &JobName) -> bool {
        self.sheet.as_ref().is_some_and(|sheet| sheet.job == *job)
    }

    fn read_digest(&mut self, digest: &RankDigest) {
        self.advance(digest.rank, digest.step, digest.step_at);
        self.pids.insert(digest.rank, digest.pid);
        self.world_size = Some(digest.world_size).filter(|&size| size > 0).or(self.world_size);
        for CommunicatorState { id, name, size, rank: member, .. } in &digest.communicators {
            let new = || CapturedCommunicator { name: name.clone(), size: *size, members: BTreeMap::new() };
            let known = self.communicators.entry(*id).or_insert_with(new);
            known.members.insert(*member, digest.rank);
            if known.name.is_empty() {
                known.name.clone_from(name);
            }
        }
    }

    fn advance(&mut self, rank: Rank, step: Option<Step>, at: Moment) {
        let progress = self.progress.entry(rank).or_default();
        if let Some(step) = step.filter(|_| progress.last().is_none_or(|&(_, before)| before < at)) {
            progress.push((step, at));
        }
    }

    /// Whether it contains no data of a capture.
    pub fn is_empty(&self) -> bool {
        self.sheet.is_none() && self.ranks.is_empty() && self.functions.is_empty()
    }

    pub fn operations(&self) -> impl Iterator<Item = (Rank, &Single)> {
        self.ranks.iter().flat_map(|(&rank, of)| of.operations.iter().map(move |single| (rank, single)))
    }
}

impl RankCapture {
    fn take(&mut self, part: &CapturePart) {
        self.parts = part.parts;
        if part.part >= part.parts || !self.came.insert(part.part) {
            return;
        }
        self.parts_missing = part.parts.saturating_sub(self.came.len() as u32);
        if let Some(account) = &part.account {
            self.account = account.clone();
        }
        let labels: Vec<_> = part.labels.iter().cloned().map(Arc::new).collect();
        let mut at = part.since;
        self.operations.reserve(part.operations.len());
        for operation in &part.operations {
            at = Moment(at.0.saturating_add(operation.after.0));
            let Some(label) = labels.get(operation.label as usize) else { continue };
            let mut single = Single {
                at,
                label: label.clone(),
                thread: operation.thread,
                sequence: operation.sequence,
                peer: None,
                span: operation.span,
            };
            if let Some(sequence) = operation.sequence.filter(|_| single.kind() == Kind::PointToPoint) {
                let (peer, number) = CapturedOperation::peer_and_number(sequence);
                (single.peer, single.sequence) = (peer, Some(number));
            }
            self.operations.push(single);
        }
        self.operations.sort_by_key(|single| single.at);
    }

    /// Whether all recorded data has arrived.
    pub fn is_whole(&self) -> bool {
        self.parts > 0 && self.parts_missing == 0
    }

    /// The step number that represents a recorded period.
    pub const WINDOW: Step = Step(1);

    /// The recorded steps: the number of each, and its start and end. If steps were marked only occasionally,
    /// several share one interval.
    pub fn steps(&self) -> impl Iterator<Item = (Step, Moment, Moment)> {
        self.account.marks.windows(2).filter_map(|pair| match pair {
            [StepMark { at: from, .. }, StepMark { completed, at: to }] => Some((*completed, *from, *to)),
            _ => None,
        })
    }

    /// Operations launched between two moments.
    pub fn between(&self, from: Moment, to: Moment) -> &[Single] {
        let begin = self.operations.partition_point(|single| single.at < from);
        let end = self.operations.partition_point(|single| single.at < to);
        self.operations.get(begin..end).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
