//! The sums of one rank's details, by a bounded number of labels.

use std::collections::{BTreeMap, HashMap};

use xpu_model::{
    job::{Job, RankView},
    status::NcclCalls,
};
use xpu_wire::{
    collective::Operation,
    datatype::DataType,
    frame::{CollectiveTotals, Launches, NcclReport, PythonTotals, RankDetail, Summary},
    id::{CommunicatorId, Pid, Rank},
    unit::{Moment, Nanoseconds},
};

use super::{
    LABEL, Pages,
    buckets::{Buckets, Spread},
    compat::Levels,
    shapes::Shapes,
};

/// Largest number of kinds of collectives for one rank: a job has one to three communicator names, a few
/// operations, and two or three sizes.
const KINDS: usize = 64;

/// Number of closed communicators whose names are kept.
const COMMUNICATORS: usize = 1024;

/// Upper ends of message sizes, and their labels.
const SIZES: [(u64, &str); 5] =
    [(1 << 10, "1KiB"), (1 << 15, "32KiB"), (1 << 20, "1MiB"), (1 << 25, "32MiB"), (1 << 30, "1GiB")];

/// The label of larger sizes.
const LARGE: &str = "more";

/// The label of kinds beyond the limit.
const OTHER: &str = "other";

/// The bucket of a message size, named by its upper end.
pub(crate) fn size_label(bytes: u64) -> &'static str {
    SIZES.iter().find(|(end, _)| bytes <= *end).map_or(LARGE, |(_, name)| name)
}

/// A communicator's label on a page: the program's name for it, else a description by its size. Its id would
/// differ in every run.
pub(crate) fn communicator_label(name: &str, size: u32, world: u32) -> String {
    if !name.is_empty() {
        return name.chars().filter(|c| !c.is_control()).take(LABEL).collect();
    }
    if size == world { "world".to_owned() } else { format!("group of {size}") }
}

/// GEMMs of one element type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Gemms {
    pub count: u64,
    pub flops: f64,
    pub timed_flops: f64,
    pub timed_for: Nanoseconds,
    pub durations: Spread,
}

/// The key of a kind of collective.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Kind {
    pub communicator: String,
    /// `None` for kinds beyond the limit.
    pub operation: Option<Operation>,
    pub size: &'static str,
}

impl Kind {
    fn other() -> Self {
        Self { communicator: OTHER.to_owned(), operation: None, size: OTHER }
    }

    pub(crate) fn operation(&self) -> String {
        self.operation.map_or_else(|| OTHER.to_owned(), |operation| operation.to_string())
    }
}

/// Collectives of one kind.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Messages {
    pub count: u64,
    pub bytes: f64,
    pub durations: Spread,
}

#[derive(Debug, Default)]
pub(crate) struct Tally {
    process: Option<Pid>,
    gemms: BTreeMap<DataType, Gemms>,
    messages: BTreeMap<Kind, Messages>,
    labels: HashMap<CommunicatorId, String>,
    steps: Option<Spread>,
    gpu: String,
    python: Option<PythonTotals>,
    launches: Launches,
    nccl: NcclReport,
    levels: Option<Levels>,
    shapes: Option<Shapes>,
    folded: usize,
}

impl Tally {
    /// Adds to the recent window, if that is enabled. `job` must have the hosts of a communicator's ranks.
    pub(crate) fn take_recent(&mut self, detail: &RankDetail, job: &Job, pages: &Pages, now: Moment) {
        let RankDetail { rank, summary, .. } = detail;
        if pages.compat {
            let on_host = |id| ranks_beside(job, *rank, id);
            self.levels
                .get_or_insert_with(|| Levels::new(pages.peaks, now))
                .take(summary, &self.nccl, on_host, now);
        }
        if pages.per_shape {
            self.shapes.get_or_insert_with(|| Shapes::new(now)).take(summary, now);
        }
    }

    /// Takes a full summary: every shape with its totals, and the durations of its interval.
    pub(crate) fn take(&mut self, summary: &Summary, pid: Pid, world: u32) {
        if self.process != Some(pid) {
            *self = Self { process: Some(pid), ..Self::default() };
        }
        if self.labels.len() > COMMUNICATORS {
            self.labels.clear();
        }
        for state in &summary.communicators {
            self.labels.insert(state.id, communicator_label(&state.name, state.size, world));
        }
        self.gpu.clone_from(&summary.device);
        self.python = summary.python;
        self.launches = summary.launches;
        if let Some(steps) = &summary.steps {
            self.steps.get_or_insert_with(|| Spread::new(Buckets::STEPS)).take(&steps.durations);
        }
        self.take_gemms(summary);
        self.take_messages(summary);
    }

    fn take_gemms(&mut self, summary: &Summary) {
        for gemms in self.gemms.values_mut() {
            (gemms.count, gemms.flops, gemms.timed_flops) = (0, 0.0, 0.0);
            gemms.timed_for = Nanoseconds(0);
        }
        for gemm in &summary.gemms {
            // There are fewer than three hundred element types.
            let gemms = self.gemms.entry(gemm.shape.datatype).or_insert_with(|| Gemms {
                count: 0,
                flops: 0.0,
                timed_flops: 0.0,
                timed_for: Nanoseconds(0),
                durations: Spread::new(Buckets::OPERATIONS),
            });
            gemms.count = gemms.count.saturating_add(gemm.count);
            gemms.flops += gemm.shape.flops() * gemm.count as f64;
            gemms.durations.take(&gemm.durations);
            if gemm.shape.routine.is_rated() {
                gemms.timed_flops += gemm.shape.flops() * gemm.timed as f64;
                gemms.timed_for = Nanoseconds(gemms.timed_for.0.saturating_add(gemm.timed_for.0));
            }
        }
    }

    fn take_messages(&mut self, summary: &Summary) {
        for messages in self.messages.values_mut() {
            (messages.count, messages.bytes) = (0, 0.0);
        }
        self.folded = 0;
        for total in &summary.collectives {
            let mut kind = self.kind(total);
            if self.messages.len() >= KINDS && !self.messages.contains_key(&kind) {
                self.folded += 1;
                kind = Kind::other();
            }
            let messages = self.messages.entry(kind).or_insert_with(|| Messages {
                count: 0,
                bytes: 0.0,
                durations: Spread::new(Buckets::OPERATIONS),
            });
            messages.count = messages.count.saturating_add(total.count);
            messages.bytes += total.bytes as f64 * total.count as f64;
            messages.durations.take(&total.durations);
        }
    }

    fn kind(&self, total: &CollectiveTotals) -> Kind {
        Kind {
            communicator: self.label(total.communicator),
            operation: Some(total.operation),
            size: size_label(total.bytes),
        }
    }

    /// A communicator's label.
    pub(crate) fn label(&self, id: CommunicatorId) -> String {
        self.labels.get(&id).cloned().unwrap_or_else(|| OTHER.to_owned())
    }

    pub(crate) fn gemms(&self) -> impl Iterator<Item = (DataType, &Gemms)> {
        self.gemms.iter().map(|(&datatype, gemms)| (datatype, gemms))
    }

    pub(crate) fn messages(&self) -> impl Iterator<Item = (&Kind, &Messages)> {
        self.messages.iter()
    }

    pub(crate) fn steps(&self) -> Option<&Spread> {
        self.steps.as_ref()
    }

    /// Name of the GPU, as CUDA gives it.
    pub(crate) fn gpu(&self) -> &str {
        &self.gpu
    }

    /// Python's garbage collections and batches, if they are recorded all the time.
    pub(crate) fn python(&self) -> Option<PythonTotals> {
        self.python
    }

    pub(crate) fn take_nccl(&mut self, report: &NcclReport) {
        self.nccl = report.clone();
    }

    /// How the hook observes the rank's NCCL calls; `None` while it has seen none.
    pub(crate) fn nccl(&self) -> Option<NcclCalls> {
        NcclCalls::of(&self.launches, &self.nccl)
    }

    /// Recent activity, if that is enabled.
    pub(crate) fn levels(&self) -> Option<&Levels> {
        self.levels.as_ref()
    }

    pub(crate) fn shapes(&self) -> Option<&Shapes> {
        self.shapes.as_ref()
    }

    /// Number of kinds beyond the limit.
    pub(crate) fn folded(&self) -> usize {
        self.folded
    }
}

/// The number of a communicator's ranks on the host of this rank. It uses the ranks' numbers: behind a relay,
/// processes on two hosts may have the same pid.
fn ranks_beside(job: &Job, rank: Rank, id: CommunicatorId) -> u32 {
    let own = job.rank(rank).map(RankView::host);
    let has = |view: &RankView| {
        let states = view.latest().into_iter().flat_map(|digest| &digest.communicators);
        Some(view.host()) == own && states.into_iter().any(|state| state.id == id)
    };
    u32::try_from(job.ranks().filter(|(_, view)| has(view)).count()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use xpu_wire::histogram::Histogram;

    use super::*;

    fn total(communicator: u64, bytes: u64, durations: &[u64]) -> CollectiveTotals {
        let mut spread = Histogram::new();
        for &duration in durations {
            spread.record(Nanoseconds(duration));
        }
        CollectiveTotals {
            communicator: CommunicatorId(communicator),
            operation: Operation::AllReduce,
            datatype: DataType::Float32,
            bytes,
            count: 10,
            timed: durations.len() as u64,
            timed_for: spread.sum(),
            durations: spread,
        }
    }

    #[test]
    fn counts_are_the_last_ones_and_durations_add_up() {
        let mut tally = Tally::default();
        let summary =
            |durations| Summary { collectives: vec![total(1, 4096, durations)], ..Summary::default() };
        tally.take(&summary(&[15_000, 15_000]), Pid(1), 8);
        tally.take(&summary(&[15_000]), Pid(1), 8);
        let (kind, messages) = tally.messages().next().unwrap();
        assert_eq!((kind.size, messages.count, messages.bytes), ("32KiB", 10, 40_960.0));
        assert_eq!(messages.durations.count(), 3);
        tally.take(&summary(&[15_000]), Pid(2), 8);
        assert_eq!(tally.messages().next().unwrap().1.durations.count(), 1, "another process begins anew");
    }

    #[test]
    fn kinds_beyond_the_bound_are_counted_under_other_and_none_is_lost() {
        let mut tally = Tally::default();
        let mut summary = Summary::default();
        for number in 0..KINDS as u64 + 9 {
            summary.communicators.push(xpu_wire::frame::CommunicatorState {
                id: CommunicatorId(number),
                parent: None,
                name: format!("group {number}"),
                rank: 0,
                size: 2,
                entered: 0,
                enqueued: 0,
                completed: 0,
                last_operation: None,
                last_bytes: 0,
            });
            summary.collectives.push(total(number, 8, &[]));
        }
        tally.take(&summary, Pid(1), 8);
        let all: u64 = tally.messages().map(|(_, messages)| messages.count).sum();
        assert_eq!((tally.messages().count(), all, tally.folded()), (KINDS + 1, 10 * (KINDS as u64 + 9), 9));
    }

    #[test]
    fn a_communicator_keeps_its_label_from_run_to_run() {
        assert_eq!(communicator_label("tp\n0", 4, 8), "tp0");
        assert_eq!(communicator_label("", 8, 8), "world");
        assert_eq!(communicator_label("", 4, 8), "group of 4");
        assert_eq!([0, 1024, 1025, 1 << 40].map(size_label), ["1KiB", "1KiB", "32KiB", "more"]);
    }
}
