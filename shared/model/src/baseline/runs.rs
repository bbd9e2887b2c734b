//! Past runs, and the one that a job is compared with.

use std::time::Duration;

use xpu_wire::unit::Moment;

use super::{Baseline, Gpu};
use crate::job::{Job, RankView};

/// Largest difference between the starts of one run's ranks.
const TOGETHER: Duration = Duration::from_mins(2);

/// Largest time before a job within which a run that began is an unseen part of that job: a saved run lasted
/// longer than this.
const APART: Duration = Duration::from_secs(30);

/// Past runs, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Runs {
    all: Vec<Baseline>,
    /// The user named a run: the job is compared with it, even if the job has another name.
    named: bool,
}

impl Runs {
    /// Merges the files of each run: every host writes a file of its own ranks.
    pub fn of(mut parts: Vec<Baseline>) -> Self {
        parts.sort_by(|a, b| (&a.job, a.world_size, a.began).cmp(&(&b.job, b.world_size, b.began)));
        let mut all: Vec<Baseline> = Vec::new();
        for part in parts {
            let is_of = |run: &Baseline| {
                let is_same = (&run.job, run.world_size) == (&part.job, part.world_size);
                is_same
                    && part.began.since(run.began) <= TOGETHER
                    && part.ranks.iter().all(|normal| run.rank(normal.rank).is_none())
            };
            match all.last_mut().filter(|run| is_of(run)) {
                Some(run) => run.ranks.extend(part.ranks),
                None => all.push(part),
            }
        }
        for run in &mut all {
            run.ranks.sort_by_key(|normal| normal.rank);
        }
        all.sort_by_key(|run| run.began);
        Self { all, named: false }
    }

    /// The run that contains this part.
    pub fn only(self, part: &Baseline) -> Self {
        let is_it = |run: &Baseline| {
            (&run.job, run.world_size) == (&part.job, part.world_size)
                && part.ranks.iter().all(|normal| run.rank(normal.rank) == Some(normal))
        };
        let run = self.all.into_iter().find(is_it);
        Self { all: vec![run.unwrap_or_else(|| part.clone())], named: true }
    }

    /// The last earlier run of the same job with the same number of ranks, on GPUs of the same model.
    pub fn before(&self, job: &Job) -> Option<&Baseline> {
        let began = began(job);
        let gpu = gpu(job);
        self.all.iter().rev().find(|run| {
            let is_past = began.is_some_and(|began| began > run.began.after(APART));
            let is_same = run.job == *job.name() && is_past;
            run.world_size == job.world_size() && (self.named || is_same) && run.gpu.is_like(&gpu)
        })
    }

    /// Why the job is compared with no run, if that is so.
    pub fn lacks(&self, job: &Job) -> Option<String> {
        began(job).filter(|_| self.before(job).is_none())?;
        let (name, ranks) = (job.name(), job.world_size());
        Some(if self.named {
            format!("{name} is compared with nothing: that run had other GPUs, or not {ranks} ranks")
        } else {
            format!(
                "{name} is compared with nothing: no earlier run with {ranks} ranks on such GPUs in this machine's ~/.local/state/xpu-top/runs"
            )
        })
    }
}

/// The job's GPUs, by the driver's library.
pub(super) fn gpu(job: &Job) -> Gpu {
    let reading = job.ranks().find_map(|(_, view)| view.device());
    Gpu {
        name: String::new(),
        sm_clock_max: reading.and_then(|reading| reading.sm_clock_max),
        memory_total: reading.and_then(|reading| reading.memory_total),
    }
}

/// When the first known rank started.
pub(super) fn began(job: &Job) -> Option<Moment> {
    job.ranks().map(|(_, view)| view).filter_map(RankView::info).map(|info| info.started).min()
}

#[cfg(test)]
mod tests {
    use xpu_simulation::Simulation;

    use super::{super::tests::run, *};
    use crate::job::Jobs;

    #[test]
    fn baselines_of_one_run_from_several_hosts_are_merged() {
        let runs = Runs::of(vec![
            run(5000, "b", 2..4),
            run(1000, "a", 0..2),
            run(1060, "b", 2..4),
            run(5001, "a", 0..2),
        ]);
        let kept: Vec<_> =
            runs.all.iter().map(|run| (run.began.0 / 1_000_000_000, run.ranks.len())).collect();
        assert_eq!(kept, [(1000, 4), (5000, 4)]);
        let named = runs.only(&run(1060, "b", 2..4));
        assert_eq!(named.all[0].ranks.len(), 4);
    }

    #[test]
    fn a_job_is_compared_with_the_last_similar_run_and_never_with_itself() {
        let mut simulation = Simulation::new(1, 1, 4);
        (simulation.job, simulation.started) = ("llama".into(), Moment(9_000_000_000_000));
        let mut jobs = Jobs::default();
        simulation.snapshots(1).iter().for_each(|frame| jobs.fold(frame));
        let job = jobs.foremost().unwrap();
        let wide = Baseline { world_size: 8, ..run(8000, "a", 0..4) };
        let other = Baseline { job: "gpt".into(), ..run(8000, "a", 0..4) };
        let gpu = Gpu { memory_total: Some(1), ..Gpu::default() };
        let small = Baseline { gpu, ..run(8000, "a", 0..4) };
        let runs = Runs::of(vec![
            run(1000, "a", 0..4),
            run(5000, "a", 0..4),
            run(9000, "a", 0..4),
            wide,
            other.clone(),
            small,
        ]);
        assert_eq!(runs.before(job).map(|run| run.began.0 / 1_000_000_000), Some(5000));
        assert_eq!(runs.only(&other).before(job), Some(&other), "whoever names one means it");
    }
}
