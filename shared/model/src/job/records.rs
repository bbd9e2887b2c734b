//! The last NCCL calls of a job's ranks: each rank's latest record.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::OnceLock,
    time::Duration,
};

use xpu_wire::{frame::RankRecord, id::Rank};

use super::{Job, RankView};
use crate::divergence::{self, Divergence};

/// Time without a call after which a rank has not reached the later calls of others.
const STALLED: Duration = Duration::from_secs(3);

#[derive(Debug, Default)]
pub(super) struct Records {
    of: BTreeMap<Rank, RankRecord>,
    revision: u64,
    /// The divergence of all records, once computed: for a running job, and for a hung one.
    divergence: [OnceLock<Option<Divergence>>; 2],
}

impl Job {
    pub(super) fn keep_record(&mut self, record: &RankRecord) {
        let fresh = self.records.of.get(&record.rank).is_none_or(|known| {
            // Of two records of the same moment, the one that was requested with fewer calls has less data.
            known.pid != record.pid
                || known.read_at < record.read_at
                || known.calls.len() < record.calls.len()
        });
        if self.rank(record.rank).is_some() && fresh {
            self.records.of.insert(record.rank, record.clone());
            self.records.revision += 1;
            self.records.divergence = Default::default();
            self.revision += 1;
        }
    }

    /// Each rank's last record, if it belongs to the present process.
    pub fn records(&self) -> impl Iterator<Item = &RankRecord> {
        self.records.of.values().filter(|record| self.is_of_present(record))
    }

    /// Counts up with each record.
    pub fn records_revision(&self) -> u64 {
        self.records.revision
    }

    /// The last record of a rank's process: the GPUs of one process share it.
    pub fn record(&self, rank: Rank) -> Option<&RankRecord> {
        let pid = self.rank(rank)?.pid();
        let later = self.records.of.range(rank.process()..).map(|(_, record)| record);
        let of_process = later.take_while(|record| record.rank.process() == rank.process());
        of_process.filter(|record| record.pid == pid).max_by_key(|record| record.read_at)
    }

    fn is_of_present(&self, record: &RankRecord) -> bool {
        self.rank(record.rank).is_some_and(|view| view.pid() == record.pid)
    }

    /// Ranks without a record since they last moved.
    pub fn without_records(&self) -> impl Iterator<Item = Rank> {
        self.processes().map(|(rank, _)| rank).filter(|&rank| !self.has_fresh_record(rank))
    }

    /// Whether a rank's last call is in its record. A rank without a record will have none.
    pub(crate) fn has_fresh_record(&self, rank: Rank) -> bool {
        let (Some(view), Some(record)) = (self.rank(rank), self.record(rank)) else { return false };
        record.read_at >= view.moved() || !record.why.is_empty()
    }

    /// The first divergence between the ranks' calls, by the received records.
    pub fn divergence(&self) -> Option<&Divergence> {
        // A rank that is just continuing has made calls since it was last heard.
        let quiet = self.records().all(|record| record.quiet_for() >= STALLED);
        let is_stuck =
            quiet && self.ranks().all(|(rank, view)| !view.is_alive() || self.has_fresh_record(rank));
        let found = &self.records.divergence[usize::from(is_stuck)];
        found.get_or_init(|| divergence::first(self.records(), &self.without_messages(), is_stuck)).as_ref()
    }

    /// The ranks that have never sent or received, by their hooks' counts.
    fn without_messages(&self) -> BTreeSet<Rank> {
        let none = |view: &RankView| view.latest().is_some_and(|it| it.launches.point_to_point == 0);
        self.ranks().filter(|(_, view)| none(view)).map(|(rank, _)| rank).collect()
    }
}
