//! What stragglers have cost the job.

use xpu_wire::{frame::JobWhatIf, id::Rank};

use super::Job;

impl Job {
    /// Keeps the newest sum. Its host repeats it after each snapshot, and the host of a former run may have
    /// an older one.
    pub(super) fn keep_what_if(&mut self, of: &JobWhatIf) {
        if self.what_if.as_deref().is_none_or(|known| known.at < of.at) {
            self.what_if = Some(Box::new(of.clone()));
            self.revision += 1;
        }
    }

    /// The newest sum; `None` if it ended before the present run of the job began.
    pub fn what_if(&self) -> Option<&JobWhatIf> {
        let of = self.what_if.as_deref()?;
        // Rank 0 has the clock of the host that published the sum.
        let started =
            self.of_process(Rank(0)).and_then(|rank| self.rank(rank)?.info()).map(|info| info.started);
        started.is_none_or(|started| started <= of.at).then_some(of)
    }
}
