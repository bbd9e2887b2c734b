//! Keeps the last line of `xpu-top what-if --live --json` for each job, for the API and the metrics.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde::Deserialize;
use serde_json::Value;
use xpu_wire::id::{HostName, JobName, Rank};

/// Number of jobs whose last line is kept.
pub(crate) const JOBS: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct WhatIfs(Mutex<BTreeMap<JobName, WhatIf>>);

impl WhatIfs {
    /// Takes a line of the command's output; `false` if the line is not a document.
    pub(crate) fn take(&self, job: &JobName, line: &str) -> bool {
        let Ok(document) = serde_json::from_str::<Value>(line) else { return false };
        let Ok(figures) = Figures::deserialize(&document) else { return false };
        let mut jobs = self.lock();
        if jobs.len() >= JOBS && !jobs.contains_key(job) {
            let oldest =
                jobs.iter().min_by(|(_, one), (_, other)| one.figures.at.total_cmp(&other.figures.at));
            let oldest = oldest.map(|(job, _)| job.clone());
            oldest.map(|job| jobs.remove(&job));
        }
        let before = jobs.get(job).and_then(|known| known.estimated_at);
        let estimated_at = figures.estimate.as_ref().map(|_| figures.at).or(before);
        jobs.insert(job.clone(), WhatIf { document, figures, estimated_at });
        true
    }

    pub(crate) fn of(&self, job: &JobName) -> Option<WhatIf> {
        self.lock().get(job).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<JobName, WhatIf>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The last line of one job.
#[derive(Clone, Debug)]
pub(crate) struct WhatIf {
    pub(crate) document: Value,
    pub(crate) figures: Figures,
    /// When a capture last gave an estimate, in seconds since 1970.
    pub(crate) estimated_at: Option<f64>,
}

/// The values that metrics use.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Figures {
    /// Seconds since 1970.
    pub(crate) at: f64,
    /// `None` if the last capture gave no estimate.
    pub(crate) estimate: Option<Estimate>,
    pub(crate) total: Total,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Estimate {
    pub(crate) slowdown: f64,
    pub(crate) step: StepTimes,
    pub(crate) losses: Vec<Loss>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct StepTimes {
    pub(crate) simulated_ms: f64,
    pub(crate) ideal_ms: f64,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Loss {
    pub(crate) cause: String,
    pub(crate) repaired_ms: f64,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Total {
    pub(crate) estimates: u64,
    pub(crate) failed: u64,
    pub(crate) steps: u64,
    pub(crate) gpu_hours: f64,
    pub(crate) lost: BTreeMap<String, Lost>,
    pub(crate) ranks: Vec<RankLost>,
    pub(crate) hosts: Vec<HostLost>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Lost {
    pub(crate) gpu_hours: f64,
    pub(crate) currency: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct RankLost {
    pub(crate) rank: Rank,
    pub(crate) gpu_hours: f64,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct HostLost {
    pub(crate) host: HostName,
    pub(crate) gpu_hours: f64,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const LINE: &str = r#"{"job":"train","at":1800000099.0,"since":1800000000.0,"state":"estimate",
        "estimate":{"at":1800000099.0,"first":3,"last":7,"ranks":8,"slowdown":1.25,"waste":0.2,"m_w":1.0,"m_s":null,
        "step":{"simulated_ms":125.0,"ideal_ms":100.0,"measured_ms":125.0},"losses":[
        {"cause":"all","repaired_ms":100.0,"lost_ms":25.0},{"cause":"ranks","ranks":[3],"repaired_ms":101.0,"lost_ms":24.0}],
        "sentences":["If rank 3 were as the others, a step would take 101 ms."]},"total":{"estimates":2,"failed":1,"steps":100,"gpu_hours":0.5,
        "lost":{"all":{"gpu_hours":0.1,"money":0.25,"currency":"EUR"},"ranks":{"gpu_hours":0.05}},
        "ranks":[{"rank":3,"gpu_hours":0.05}],"hosts":[]}}"#;

    #[test]
    fn the_last_document_of_a_job_is_kept_and_other_lines_are_not() {
        let (kept, job) = (WhatIfs::default(), JobName::from("train"));
        assert!(kept.take(&job, LINE) && !kept.take(&job, "xpu-top: no job") && !kept.take(&job, "{}"));
        let figures = kept.of(&job).expect("it is kept").figures;
        assert_eq!((figures.total.steps, figures.total.ranks[0].rank), (100, Rank(3)));
        for number in 0..2 * JOBS {
            kept.take(&JobName::from(&*format!("job{number}")), LINE);
        }
        assert_eq!(kept.lock().len(), JOBS);
    }
}
