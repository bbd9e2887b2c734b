//! `xpu-top ctl`: switches the hooks of a running job, and waits until its ranks confirm.

use std::{collections::BTreeMap, fmt::Write as _, process::ExitCode, time::Duration};

use tokio::time::Instant;
use xpu_client::{
    arrival::Arrivals,
    follow::Following,
    live::{self, Live},
};
use xpu_model::{
    job::{Job, RankView},
    status::ExitCode as Code,
};
use xpu_wire::{
    frame::Life,
    id::{HostName, JobName, Rank},
};

use super::living::{LOOK, report_no_job, report_unreachable, take_until, the_job};
use crate::args::{CtlArgs, OnOff};

/// Interval of requests while a rank has not confirmed, because one may have been lost.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Ranks named one by one.
const NAMED: usize = 8;

/// Exit code: a rank did not confirm, or a host could not be asked.
const NOT_ALL: u8 = 1;

pub fn ctl(args: &CtlArgs) -> anyhow::Result<ExitCode> {
    let hosts = args.of.hosts()?;
    let key = args.of.connection.key()?;
    hosts.warnings.iter().for_each(|warning| eprintln!("xpu-top: {warning}"));
    let warned = !hosts.warnings.is_empty();
    let mut following = Following::new(hosts.endpoints.iter().cloned(), args.of.job.clone());
    let (live, mut arrivals) = live::connect(hosts.endpoints, key, args.of.job.clone());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let until = |following: &Following| following.is_complete();
    runtime.block_on(take_until(&mut following, &mut arrivals, Instant::now() + LOOK, until));
    let Some(job) = the_job(&following, args.of.job.as_ref())? else {
        report_unreachable(&following, ": its hooks stay as they are");
        report_no_job(args.of.job.as_ref());
        return Ok(ExitCode::from(Code::NoData as u8));
    };
    let on = args.hook == OnOff::On;
    runtime.block_on(switch(&mut following, &mut arrivals, &live, &job, args));
    report_unreachable(&following, ": its hooks stay as they are");
    let outcome = following.jobs().get(&job).map(|job| Outcome::of(job, on)).unwrap_or_default();
    print!("{}", outcome.text(&job, on));
    let all = outcome.is_whole() && following.unreachable().next().is_none() && !warned;
    Ok(ExitCode::from(if all { 0 } else { NOT_ALL }))
}

/// Asks until every living rank has confirmed, or the time is up.
async fn switch(
    following: &mut Following,
    arrivals: &mut Arrivals,
    live: &Live,
    job: &JobName,
    args: &CtlArgs,
) {
    let on = args.hook == OnOff::On;
    let deadline = Instant::now() + Duration::from_secs(args.wait.into());
    let followed =
        |following: &Following| following.jobs().get(job).is_some_and(|job| Outcome::of(job, on).is_whole());
    while Instant::now() < deadline {
        live.switch(job.clone(), on);
        let pause = deadline.min(Instant::now() + ASK_AGAIN);
        if take_until(following, arrivals, pause, followed).await {
            return;
        }
    }
}

/// The ranks that switched, by host.
#[derive(Debug, Default, PartialEq)]
struct Outcome {
    hosts: BTreeMap<HostName, Host>,
}

#[derive(Debug, Default, PartialEq)]
struct Host {
    followed: usize,
    /// Ranks that did not switch, with the reason if known.
    others: Vec<(Rank, &'static str)>,
}

impl Outcome {
    fn of(job: &Job, on: bool) -> Self {
        let mut hosts = BTreeMap::<_, Host>::new();
        for (rank, view) in job.ranks().filter(|(_, view)| view.is_alive()) {
            let host = hosts.entry(view.host().clone()).or_default();
            match refusal(view, on) {
                None => host.followed += 1,
                Some(why) => host.others.push((rank, why)),
            }
        }
        Self { hosts }
    }

    fn is_whole(&self) -> bool {
        !self.hosts.is_empty() && self.hosts.values().all(|host| host.others.is_empty())
    }

    fn text(&self, job: &JobName, on: bool) -> String {
        let word = if on { "on" } else { "off" };
        let mut text = String::new();
        for (name, host) in &self.hosts {
            let all = host.followed + host.others.len();
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{name}: {} of {all} ranks {word}", host.followed);
            for (rank, why) in host.others.iter().take(NAMED) {
                let _ = writeln!(text, "  rank {rank} did not switch: {why}");
            }
            if host.others.len() > NAMED {
                let _ = writeln!(text, "  and {} more", host.others.len() - NAMED);
            }
        }
        let followed = self.hosts.values().map(|host| host.followed).sum::<usize>();
        let all = self.hosts.values().map(|host| host.followed + host.others.len()).sum::<usize>();
        let _ = writeln!(text, "{job}: hook {word} on {followed} of {all} ranks");
        text
    }
}

/// Why a rank has not switched.
fn refusal(view: &RankView, on: bool) -> Option<&'static str> {
    let enabled = view.latest().map(|digest| digest.enabled);
    match (view.life(), enabled) {
        (_, Some(enabled)) if enabled == on => None,
        (Life::Silent, _) => {
            Some("it does not answer; it switches when it runs again, if its collector still knows it")
        }
        (_, None) => Some("it has not reported yet; try again"),
        _ if on => {
            Some("its hook stays off: a fault turned it off, or it was started with XPU_TOP_DISABLE=1")
        }
        _ => Some("it has not confirmed in time; allow more with --wait"),
    }
}

#[cfg(test)]
mod tests {
    use xpu_model::job::Jobs;
    use xpu_simulation::Simulation;
    use xpu_wire::frame::Body;

    use super::*;

    /// A job of two hosts; `off` and `silent` list ranks that are off and ranks that are silent.
    fn job(off: &[u32], silent: &[u32]) -> Jobs {
        let simulation = Simulation::new(1, 2, 2);
        let mut jobs = Jobs::default();
        for mut frame in simulation.snapshots(1) {
            if let Body::Snapshot(snapshot) = &mut frame.body {
                for rank in &mut snapshot.jobs[0].ranks {
                    rank.digest.enabled = !off.contains(&rank.info.rank.0);
                    if silent.contains(&rank.info.rank.0) {
                        rank.digest.life = Life::Silent;
                    }
                }
            }
            jobs.fold(&frame);
        }
        jobs
    }

    fn outcome(jobs: &Jobs, on: bool) -> Outcome {
        Outcome::of(jobs.foremost().unwrap(), on)
    }

    #[test]
    fn the_output_has_a_line_per_host_and_a_sum() {
        let text = outcome(&job(&[0, 1, 2, 3], &[]), false).text(&"llama-70b".into(), false);
        assert_eq!(
            text,
            "gpu-001: 2 of 2 ranks off\ngpu-002: 2 of 2 ranks off\nllama-70b: hook off on 4 of 4 ranks\n"
        );
    }

    #[test]
    fn a_rank_that_did_not_follow_is_named_with_the_reason() {
        let outcome = outcome(&job(&[0, 1, 3], &[2]), false);
        assert!(!outcome.is_whole());
        let text = outcome.text(&"llama-70b".into(), false);
        assert!(
            text.contains("gpu-002: 1 of 2 ranks off\n  rank 2 did not switch: it does not answer"),
            "{text}"
        );
    }

    #[test]
    fn on_is_whole_only_when_all_are_on() {
        assert!(outcome(&job(&[], &[]), true).is_whole());
        assert!(!outcome(&job(&[3], &[]), true).is_whole());
        assert!(!Outcome::default().is_whole(), "report_no_job is not everybody");
    }
}
