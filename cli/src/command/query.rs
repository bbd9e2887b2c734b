//! Asks the ranks of one job, which runs or is in a recording.

use std::path::Path;

use tokio::time::Instant;
use xpu_client::follow::Following;
use xpu_model::job::Job;
use xpu_wire::id::JobName;

use super::{
    living::{
        Connection, LOOK, connect, report_kept, report_no_job, report_unreachable, take_until, unambiguous,
    },
    past,
};
use crate::args::{JobArgs, UsageError};

/// The job to ask, and what the messages of the command need.
pub(super) struct Query<'a> {
    /// The command's name.
    pub(super) command: &'static str,
    pub(super) of: &'a JobArgs,
    /// A recording, and the time in it.
    pub(super) replay: Option<&'a Path>,
    pub(super) at: Option<&'a str>,
    /// The consequence if a host cannot be reached: `: its ranks are not shown`.
    pub(super) without: &'static str,
}

/// The frames of the job, and the result of asking its ranks.
pub(super) struct Answered<T> {
    following: Following,
    name: JobName,
    /// `None` if the job is in a recording, whose ranks are not asked.
    pub(super) answer: Option<T>,
}

impl<T> Answered<T> {
    pub(super) fn job(&self) -> Option<&Job> {
        self.following.jobs().get(&self.name)
    }
}

impl Query<'_> {
    /// Finds the job, and asks its ranks if it is not in a recording. `None` if there is no such job: that is
    /// reported.
    pub(super) fn run<T>(
        &self,
        ask: impl AsyncFnOnce(&mut Connection, &JobName) -> T,
    ) -> anyhow::Result<Option<Answered<T>>> {
        let named = self.of.job.as_ref();
        if let Some(path) = self.replay {
            let (following, _) = past::followed(path, self.at, named, None)?;
            let Some(name) = following.job().map(|job| job.name().clone()) else {
                eprintln!("xpu-top: {}: it has no job at that time", path.display());
                return Ok(None);
            };
            return Ok(Some(Answered { following, name, answer: None }));
        }
        let mut connection = connect(self.of)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let Connection { following, arrivals, .. } = &mut connection;
        runtime.block_on(take_until(following, arrivals, Instant::now() + LOOK, Following::has_answered));
        let Some(name) = selected_job(following, named)? else {
            report_unreachable(following, self.without);
            report_no_job(named);
            report_kept(self.command, named);
            return Ok(None);
        };
        let answer = runtime.block_on(ask(&mut connection, &name));
        report_unreachable(&connection.following, self.without);
        Ok(Some(Answered { following: connection.following, name, answer: Some(answer) }))
    }
}

/// The named job, the only one, or the only living one; a job is never guessed. A job that has ended can be
/// queried too.
fn selected_job(following: &Following, named: Option<&JobName>) -> Result<Option<JobName>, UsageError> {
    let known = || following.jobs().iter();
    if let Some(named) = named {
        return Ok(known().any(|job| job.name() == named).then(|| named.clone()));
    }
    let living: Vec<_> = known().filter(|job| job.living() > 0).map(Job::name).collect();
    let all: Vec<_> = known().map(Job::name).collect();
    if let [one] = living[..] { Ok(Some(one.clone())) } else { unambiguous(&all) }
}
