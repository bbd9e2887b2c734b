//! The last NCCL calls of ranks, on request and when a job hangs.

use std::time::Duration;

use xpu_wire::{
    frame::RankRecord,
    id::{JobName, Rank},
    unit::Moment,
};

use super::{Place, Roster};
use crate::stacks::Target;

/// Minimum interval between records of a rank that no viewer requested.
const UNASKED: Duration = Duration::from_mins(1);

impl Roster {
    /// The records of the named ranks of a job, or of all its ranks here if none is named. `None` if the job
    /// has no ranks here.
    pub(crate) fn records(
        &mut self,
        job: &JobName,
        ranks: &[Rank],
        most: usize,
        now: Moment,
    ) -> Option<Vec<RankRecord>> {
        let most = most.clamp(1, RankRecord::CALLS);
        let mut of_job = self
            .places
            .iter_mut()
            .filter(|(place, worker)| place.job == *job && !worker.is_beside())
            .map(|(_, worker)| worker)
            .peekable();
        of_job.peek()?;
        let named = of_job.filter(|worker| worker.is_named(ranks));
        Some(named.map(|worker| worker.record(most, now)).collect())
    }

    /// The records of hung jobs, once per hang. For a rank that is gone, this is its last record.
    pub(crate) fn records_to_publish(&mut self, stalled: &[Target], now: Moment) -> Vec<RankRecord> {
        let mut records = Vec::new();
        for target in stalled {
            let place = Place { job: target.job.clone(), rank: target.rank };
            let worker = self.places.get_mut(&place);
            records.extend(worker.and_then(|worker| worker.record_to_publish(UNASKED, now)));
        }
        records
    }
}
