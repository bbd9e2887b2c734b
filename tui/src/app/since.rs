//! Since when a finding is. The evidence knows only what was folded since the last jump, so what is known beside it counts too.

use std::time::Duration;

use xpu_model::finding::Finding;
use xpu_wire::unit::Moment;

use super::App;

impl App {
    /// The earliest that is known: by its own figures, by what this screen has found, and in a recording by
    /// the search for findings.
    pub(crate) fn since(&self, finding: &Finding) -> Moment {
        let lasted = Duration::from_secs_f64(finding.since_s.max(0.0));
        let own = Moment(self.now.0.saturating_sub(u64::try_from(lasted.as_nanos()).unwrap_or(u64::MAX)));
        let searched = || self.playback.as_ref()?.since(self.job()?.name(), finding);
        // A log of a past begins where the past was jumped to; of what runs on, the log is the screen's.
        [self.log.since(finding), searched()].into_iter().flatten().fold(own, Moment::min)
    }
}
