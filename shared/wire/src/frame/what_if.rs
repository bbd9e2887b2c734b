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

    /// Longest name of a host, in bytes.
    const LONGEST_HOST: usize = 255;

    /// Without what exceeds the limits: every viewer gets it every few seconds. Sums that are no numbers are
    /// left out.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        if !self.gpu_hours.is_finite() {
            self.gpu_hours = 0.0;
        }
        self.lost.retain(|(_, hours)| hours.is_finite());
        self.ranks.retain(|(_, hours)| hours.is_finite());
        self.hosts.retain(|(host, hours)| host.0.len() <= Self::LONGEST_HOST && hours.is_finite());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::example::what_if;

    #[test]
    fn only_short_texts_and_finite_sums_are_published() {
        let (long, longest) = ("h".repeat(256), "ö".repeat(127));
        let hours = |host: &str, hours| (host.into(), hours);
        let of = JobWhatIf {
            gpu_hours: f64::INFINITY,
            lost: vec![(StragglerCause::All, f64::NAN), (StragglerCause::Ranks, 1.5)],
            ranks: vec![(Rank(1), f64::NEG_INFINITY), (Rank(2), 1.5)],
            hosts: vec![hours(&long, 1.0), hours(&longest, 1.0), hours("a", f64::NAN)],
            why: "é".repeat(501),
            sentences: vec!["\u{1f40d}".repeat(500); 17],
            ..what_if()
        };
        let bounded = of.bounded();
        assert_eq!(bounded.gpu_hours.to_bits(), 0.0_f64.to_bits());
        assert_eq!(bounded.lost, [(StragglerCause::Ranks, 1.5)]);
        assert_eq!(bounded.ranks, [(Rank(2), 1.5)]);
        assert_eq!(bounded.hosts, [hours(&longest, 1.0)]);
        assert_eq!((bounded.why.chars().count(), bounded.sentences.len()), (500, 16));
        assert_eq!(bounded.sentences[0].chars().count(), 500);
        assert_eq!(what_if().bounded(), what_if());
    }
}
