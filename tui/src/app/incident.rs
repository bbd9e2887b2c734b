//! A hang of the job. The screen shows it by itself, until the user has acknowledged it.

use xpu_model::finding::Finding;
use xpu_wire::unit::Moment;

#[derive(Clone, Debug, PartialEq)]
pub struct Incident {
    /// The finding, as it was last found.
    pub finding: Finding,
    /// When it was seen first, by this machine's clock.
    pub since: Moment,
    /// When the job continued.
    pub over: Option<Moment>,
    /// Whether the screen has opened the stacks by itself; it does so once per incident.
    pub(crate) has_alarmed: bool,
}

impl Incident {
    /// The incident after taking the present findings into account.
    pub(super) fn follow(known: Option<Self>, findings: &[Finding], now: Moment) -> Option<Self> {
        let incident = findings.iter().find(|finding| finding.stops_the_job());
        match (known, incident) {
            (Some(incident), Some(finding)) if incident.over.is_none() => {
                Some(Self { finding: finding.clone(), ..incident })
            }
            (_, Some(finding)) => {
                Some(Self { finding: finding.clone(), since: now, over: None, has_alarmed: false })
            }
            (Some(incident), None) => Some(Self { over: incident.over.or(Some(now)), ..incident }),
            (None, None) => None,
        }
    }
}
