//! When a finding began. The evidence covers only frames that were folded since the last jump, so other
//! sources are used too.

use std::time::Duration;

use xpu_model::finding::Finding;
use xpu_wire::unit::Moment;

use super::App;

impl App {
    /// The earliest known time: from its own figures, from this screen's log, and in a recording from the
    /// search for findings.
    pub(crate) fn since(&self, finding: &Finding) -> Moment {
        let lasted = Duration::from_secs_f64(finding.since_s.max(0.0));
        let own = Moment(self.now().0.saturating_sub(u64::try_from(lasted.as_nanos()).unwrap_or(u64::MAX)));
        let logged = || self.observed.log(self.job()?.name())?.since(finding);
        let searched = || self.playback()?.since(self.job()?.name(), finding);
        // In the past, the log begins at the target of the jump, while the screen's log covers the running
        // job.
        [logged(), searched()].into_iter().flatten().fold(own, Moment::min)
    }
}
