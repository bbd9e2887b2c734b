//! The last answer of NCCL's RAS service about the job.

use std::collections::BTreeSet;

use xpu_wire::{frame::RasReport, id::Pid};

use super::Job;

impl Job {
    /// Keeps the newest report. A report without an answer does not replace one with an answer.
    pub(super) fn keep_ras(&mut self, report: &RasReport) {
        let displaces = self.ras.as_deref().is_none_or(|known| {
            (report.is_answered() || !known.is_answered()) && known.asked_at <= report.asked_at
        });
        if displaces {
            self.ras = Some(Box::new(report.clone()));
            self.revision += 1;
        }
    }

    /// The last report; `None` if it was about processes that no longer belong to the job.
    pub fn ras(&self) -> Option<&RasReport> {
        let report = self.ras.as_deref()?;
        let of_ranks = report.communicators.iter().flat_map(|one| &one.ranks).filter_map(|rank| rank.pid);
        let mut asked = of_ranks.peekable();
        let present: BTreeSet<Pid> = self.ranks().map(|(_, view)| view.pid()).collect();
        (asked.peek().is_none() || asked.any(|pid| present.contains(&pid))).then_some(report)
    }
}
