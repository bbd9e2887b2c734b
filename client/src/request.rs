//! Requests data of a job from its hosts, and takes what arrives in time.

use std::{io, time::Duration};

use tokio::{
    runtime,
    time::{Instant, timeout_at},
};
use xpu_model::status::Status;
use xpu_net::key::Key;
use xpu_wire::{id::JobName, unit::Moment};

use crate::{
    arrival::{Arrivals, Endpoint},
    follow::Following,
    live::{self, Live},
};

/// Time limit for hosts to report their ranks, for the last calls of ranks, and for their stacks.
const REPORT: Duration = Duration::from_secs(5);
const RECORDS: Duration = Duration::from_secs(5);
const STACKS: Duration = Duration::from_secs(12);

/// Takes frames until `enough` or the deadline.
pub async fn take_until(
    following: &mut Following,
    arrivals: &mut Arrivals,
    deadline: Instant,
    enough: impl Fn(&Following) -> bool,
) -> bool {
    while !enough(following) {
        match timeout_at(deadline, arrivals.recv()).await {
            Ok(Some(arrival)) => following.take(arrival),
            Ok(None) | Err(_) => return false,
        }
    }
    true
}

/// Reads the stacks of all ranks of a hung job that answer in time.
pub async fn take_stacks(
    following: &mut Following,
    arrivals: &mut Arrivals,
    live: &Live,
    patience: Duration,
) {
    let Some(job) = following.job() else { return };
    let ranks: Vec<_> = job.without_stacks().collect();
    if ranks.is_empty() {
        return;
    }
    live.kept_stacks(job.name().clone(), ranks);
    let all_came =
        |following: &Following| following.job().is_none_or(|job| job.without_stacks().next().is_none());
    take_until(following, arrivals, Instant::now() + patience, all_came).await;
}

/// Reads the last NCCL calls of a hung job in the same way. They show where its ranks diverge.
pub async fn take_records(
    following: &mut Following,
    arrivals: &mut Arrivals,
    live: &Live,
    patience: Duration,
) {
    let Some(job) = following.job() else { return };
    let ranks: Vec<_> = job.without_records().collect();
    if ranks.is_empty() {
        return;
    }
    live.records(job.name().clone(), ranks);
    let all_came =
        |following: &Following| following.job().is_none_or(|job| job.without_records().next().is_none());
    take_until(following, arrivals, Instant::now() + patience, all_came).await;
}

/// The status of a hung job over all these hosts, with calls and stacks. Blocks for 22 seconds at most.
///
/// # Errors
/// Fails if the system provides no timer.
pub fn status_of_hung_job(endpoints: Vec<Endpoint>, key: Option<Key>, job: JobName) -> io::Result<Status> {
    let runtime = runtime::Builder::new_current_thread().enable_time().build()?;
    let mut following = Following::new(endpoints.iter().cloned(), Some(job.clone()));
    let (live, mut arrivals) = live::connect_briefly(endpoints, key, Some(job));
    runtime.block_on(async {
        let (following, arrivals) = (&mut following, &mut arrivals);
        take_until(following, arrivals, Instant::now() + REPORT, Following::is_complete).await;
        take_records(following, arrivals, &live, RECORDS).await;
        take_stacks(following, arrivals, &live, STACKS).await;
    });
    Ok(following.status(Moment::now()))
}
