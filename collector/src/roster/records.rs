//! The last NCCL calls of ranks, on request and when a job hangs.

use std::time::Duration;

use xpu_wire::{
    frame::RankRecord,
    id::{JobName, Rank},
    unit::Moment,
};

use super::{Place, Roster};
use crate::stacks::Target;

/// Unasked, a rank's record is published at most once in this time.
const UNASKED: Duration = Duration::from_mins(1);

impl Roster {
    /// Those of a job's ranks, all that are here if none is named; `None` if there are none.
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
            .filter(|(place, _)| place.job == *job)
            .map(|(_, worker)| worker)
            .peekable();
        of_job.peek()?;
        let named = of_job.filter(|worker| ranks.is_empty() || ranks.contains(&worker.info.rank));
        Some(named.map(|worker| worker.record(most, now)).collect())
    }

    /// Those of jobs that stand, each once in a standstill; of ranks that are gone, their last.
    pub(crate) fn records_to_publish(&mut self, standing: &[Target], now: Moment) -> Vec<RankRecord> {
        let mut records = Vec::new();
        for target in standing {
            let place = Place { job: target.job.clone(), rank: target.rank };
            let worker = self.places.get_mut(&place);
            records.extend(worker.and_then(|worker| worker.record_to_publish(UNASKED, now)));
        }
        records
    }
}
