//! What stragglers have cost a job, summed up by `xpu-top what-if --live`.

use serde::{Deserialize, Serialize};

use crate::{
    id::{HostName, JobName, Rank},
    unit::Moment,
};

/// The last sum of one job, and the last estimate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobWhatIf {
    pub job: JobName,
    /// When the captures began, and when the last one ended.
    pub since: Moment,
    pub at: Moment,
    /// Number of captures that gave an estimate, and of those that gave none.
    pub estimates: u64,
    pub failed: u64,
    /// Why the last capture gave no estimate; empty if it gave one.
    #[serde(deserialize_with = "crate::text::line")]
    pub why: String,
    /// Steps from the first estimate to the last, and the GPU-hours of all ranks in them.
    pub steps: u64,
    pub gpu_hours: f64,
    /// GPU-hours lost in these steps. Causes overlap.
    pub lost: Vec<(StragglerCause, f64)>,
    /// GPU-hours lost by slow ranks and slow hosts, the costliest first.
    pub ranks: Vec<(Rank, f64)>,
    pub hosts: Vec<(HostName, f64)>,
    /// The sentences of the last estimate; empty if the last capture gave none.
    #[serde(deserialize_with = "crate::text::each")]
    pub sentences: Vec<String>,
}

impl JobWhatIf {
    /// Largest number of ranks, of hosts and of sentences.
    pub const MOST: usize = 16;

    /// Longest text, in characters.
    const LONGEST: usize = 500;

    /// Without what exceeds the limits: every viewer gets it every few seconds.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        self.lost.truncate(Self::MOST);
        self.ranks.truncate(Self::MOST);
        self.hosts.truncate(Self::MOST);
        self.sentences.truncate(Self::MOST);
        for text in self.sentences.iter_mut().chain([&mut self.why]) {
            if let Some((end, _)) = text.char_indices().nth(Self::LONGEST) {
                text.truncate(end);
            }
        }
        self
    }
}

/// What the time of a step is lost to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StragglerCause {
    /// Everything that is not ideal.
    All,
    /// The few ranks whose repair gains half of the whole loss, or the one rank whose repair gains most.
    /// Several ranks are named only if the job counts as straggling; otherwise, chance would select them.
    Ranks,
    /// The host whose repair gains half of the whole loss, if no small group of ranks does.
    Host,
    /// The stage whose repair gains most.
    Stage,
    /// Collectives that take longer than they typically do.
    Communication,
}

impl StragglerCause {
    pub fn word(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Ranks => "ranks",
            Self::Host => "host",
            Self::Stage => "stage",
            Self::Communication => "communication",
        }
    }
}
