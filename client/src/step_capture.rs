//! Captures of a few steps, taken repeatedly for an analysis, and only while all ranks of the job train.

use std::{path::Path, sync::atomic::Ordering::Relaxed, time::Duration};

use tokio::time::Instant;
use xpu_model::{figure::counted, finding, job::Job, status::RankState};
use xpu_wire::{
    frame::JobWhatIf,
    id::{JobName, Rank},
    unit::Moment,
};

use crate::{
    capture::{Begin, Plan, Request, Stop, Taking, Wanted},
    follow::Following,
    live,
    recording_writer::header,
    request::take_until,
    screen_capture::{Targets, await_hosts},
};

/// Longest time of a capture, in addition to its steps.
const WAIT: Duration = Duration::from_mins(1);

/// Time limit for a sum to be published.
const PUBLISHED: Duration = Duration::from_secs(5);

/// Why there is no capture.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Skipped {
    /// No rank of the job reports.
    #[error("no rank of the job reports on these hosts")]
    NoJob,
    #[error("there are {} jobs: choose one with --job: {}", .0.len(), names(.0))]
    Several(Vec<JobName>),
    /// Not possible now. The next attempt may succeed.
    #[error("{0}")]
    NotNow(String),
}

fn names(jobs: &[JobName]) -> String {
    jobs.iter().map(JobName::as_str).collect::<Vec<_>>().join(", ")
}

/// Captures the next steps of all ranks of the named job, or of the only one, into a new file. Returns the
/// job's name.
///
/// # Errors
/// Fails if a rank does not train, or not all ranks recorded all steps. The file may then exist.
pub async fn take(
    targets: &Targets,
    job: Option<&JobName>,
    steps: u32,
    path: &Path,
    stop: Stop,
) -> Result<JobName, Skipped> {
    let mut following = Following::new(targets.endpoints.iter().cloned(), job.cloned());
    let (live, mut arrivals) =
        live::connect_briefly(targets.endpoints.clone(), targets.key.clone(), job.cloned());
    await_hosts(&mut following, &mut arrivals).await;
    let job = chosen(&following, job)?;
    if let Some(host) = following.unreachable().next() {
        return Err(Skipped::NotNow(host.why));
    }
    if stop.load(Relaxed) {
        return Err(Skipped::NotNow("it was ended".to_owned()));
    }
    trains(job, Moment::now())?;
    let longest = job.ranks().filter_map(|(_, view)| view.step_time().or_else(|| view.pace())).max();
    let step = longest.map_or(Duration::ZERO, |step| Duration::from_nanos(step.0));
    let plan = Plan {
        what: Wanted::Steps(steps),
        begin: Begin::Soon,
        before: 0,
        activity: false,
        functions: false,
        functions_only: false,
        python: None,
        // One more step passes before the first step begins.
        wait: WAIT + 2 * step * (steps + 1),
        watch: false,
    };
    let ranks = job.processes().map(|(rank, _)| rank).collect();
    let (job, header) = (job.name().clone(), header(Some(job.name()), &targets.endpoints));
    let failed = |error: &dyn std::fmt::Display| Skipped::NotNow(format!("not captured: {error}"));
    let mut quiet = |_| {};
    let request = Request { path, header: &header, job: job.clone(), ranks, plan, stop };
    let taking = Taking::begin(request, &mut following, &live, &mut quiet);
    let outcome = taking.map_err(|error| failed(&error))?.take(&mut arrivals).await;
    let outcome = outcome.map_err(|error| failed(&format!("{error:#}")))?;
    if outcome.done < outcome.ranks {
        let why = outcome.complaints.first().map_or(outcome.summary.as_str(), String::as_str);
        return Err(failed(&why));
    }
    Ok(job)
}

/// Publishes what stragglers have cost a job to all its viewers. If the collector of rank 0 is older, they do
/// not get it.
pub async fn publish(targets: &Targets, of: JobWhatIf) {
    let mut following = Following::new(targets.endpoints.iter().cloned(), Some(of.job.clone()));
    let (live, mut arrivals) =
        live::connect_briefly(targets.endpoints.clone(), targets.key.clone(), Some(of.job.clone()));
    await_hosts(&mut following, &mut arrivals).await;
    let job = of.job.clone();
    let known = |following: &Following| following.jobs().get(&job)?.what_if().cloned();
    let before = known(&following);
    let first = following.jobs().get(&job).and_then(|job| job.rank(job.of_process(Rank(0))?));
    let host = first.map(|rank| rank.host().clone());
    live.publish_what_if(of, host);
    // The connection stays open until the collector has published it.
    let is_published = |following: &Following| known(following) != before;
    take_until(&mut following, &mut arrivals, Instant::now() + PUBLISHED, is_published).await;
}

fn chosen<'a>(following: &'a Following, named: Option<&JobName>) -> Result<&'a Job, Skipped> {
    let living: Vec<_> = following.jobs().iter().filter(|job| job.living() > 0).collect();
    match (named, &living[..]) {
        (Some(named), _) => living.into_iter().find(|job| job.name() == named).ok_or(Skipped::NoJob),
        (None, []) => Err(Skipped::NoJob),
        (None, [one]) => Ok(one),
        (None, several) => Err(Skipped::Several(several.iter().map(|job| job.name().clone()).collect())),
    }
}

/// Whether all ranks of the job report, and all of them complete steps.
fn trains(job: &Job, now: Moment) -> Result<(), Skipped> {
    let not_now = |why: String| Err(Skipped::NotNow(why));
    if !job.is_whole() {
        let (here, all) = (job.processes().count(), job.world_size() as usize);
        return not_now(format!("{here} of {} run on these hosts", counted(all, "rank", "ranks")));
    }
    let findings = finding::examine(job, now);
    if let Some(found) = findings.iter().find(|found| found.stops_the_job()) {
        return not_now(format!("the job hangs: {}", found.evidence));
    }
    for (rank, view) in job.ranks() {
        let state = finding::state(&findings, rank, view);
        if !matches!(state, RankState::Ok | RankState::Slow) {
            return not_now(format!("rank {rank} does not train: its state is {}", state.name()));
        }
        if view.step().is_none() {
            return not_now(format!("no step of rank {rank} is known yet"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use xpu_simulation::Simulation;
    use xpu_wire::{frame::Body, frame::Life};

    use super::*;
    use crate::arrival::Arrival;

    /// Two ranks after some seconds of training; the second is in this state.
    fn followed(world: u32, life: Life, hears: bool) -> Following {
        let mut following = Following::new([], None);
        let simulation = Simulation::new(1, 1, 2);
        let digests = (100..104).flat_map(|second| simulation.digests(second));
        for mut frame in simulation.snapshots(4).into_iter().chain(digests) {
            if let Body::Digest(digest) = &mut frame.body {
                digest.ranks.iter_mut().for_each(|rank| rank.world_size = world);
                digest.ranks[1].life = life;
                digest.ranks[1].step = digest.ranks[1].step.filter(|_| hears);
            }
            following.take(Arrival::Frame(Box::new(frame)));
        }
        following
    }

    fn says(world: u32, life: Life, hears: bool) -> Result<(), String> {
        let following = followed(world, life, hears);
        let job = chosen(&following, None).expect("a job");
        trains(job, Moment(104_000_000_000)).map_err(|why| why.to_string())
    }

    #[test]
    fn only_a_job_of_which_every_rank_trains_is_captured() {
        assert_eq!(says(2, Life::Alive, true), Ok(()));
        assert_eq!(says(4, Life::Alive, true), Err("2 of 4 ranks run on these hosts".to_owned()));
        assert!(says(2, Life::Died, true).is_err());
        assert_eq!(says(2, Life::Ended, true), Err("rank 1 does not train: its state is exited".to_owned()));
        assert_eq!(says(2, Life::Alive, false), Err("no step of rank 1 is known yet".to_owned()));
    }

    #[test]
    fn an_ended_job_is_not_captured() {
        let following = followed(2, Life::Alive, true);
        assert_eq!(chosen(&following, Some(&"gone".into())).err(), Some(Skipped::NoJob));
    }
}
