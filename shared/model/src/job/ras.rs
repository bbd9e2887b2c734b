//! What NCCL's RAS service last said of the job.

use xpu_wire::frame::RasReport;

use super::Job;

impl Job {
    /// The newest stays; a question without an answer does not displace an answer.
    pub(super) fn keep_ras(&mut self, report: &RasReport) {
        let displaces = self.ras.as_deref().is_none_or(|known| {
            (report.is_answered() || !known.is_answered()) && known.asked_at <= report.asked_at
        });
        if displaces {
            self.ras = Some(Box::new(report.clone()));
            self.revision += 1;
        }
    }

    pub fn ras(&self) -> Option<&RasReport> {
        self.ras.as_deref()
    }
}
