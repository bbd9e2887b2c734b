//! Checks whether the given hosts answer, and which jobs run there.

use std::time::Duration;

use tokio::time::Instant;
use xpu_client::{follow::Following, live};
use xpu_model::{figure, job::Job};

use super::{check::Check, ports::Holder, started};
use crate::{args::DoctorArgs, command::living::take_until};

/// How long hosts may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Hosts listed one by one.
const NAMED: usize = 16;

pub(super) fn checks(args: &DoctorArgs, holder: &Holder) -> anyhow::Result<Vec<Check>> {
    let of = &args.of;
    let named = of.are_named();
    let hosts = of.hosts(&args.connection)?;
    let mut checks: Vec<_> = hosts
        .warnings
        .iter()
        .map(|warning| Check::warn("hosts", warning.place.clone(), warning.what.clone()))
        .collect();
    let mut following = Following::new(hosts.endpoints.iter().cloned(), None);
    // Another check reports an unreadable key.
    let (live, mut arrivals) =
        live::connect(hosts.endpoints, args.connection.key().unwrap_or_default(), None);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let deadline = Instant::now() + PATIENCE;
    let answered = |following: &Following| following.has_answered() && following.is_complete();
    runtime.block_on(take_until(&mut following, &mut arrivals, deadline, answered));
    drop(live);
    let unreachable: Vec<_> = following.unreachable().collect();
    for host in unreachable.iter().take(NAMED) {
        checks.push(match holder {
            _ if named => Check::fail("host", host.host.clone(), host.why.clone()),
            Holder::Another { .. } | Holder::Ours => {
                Check::warn("host", "a collector listens there and does not answer", host.why.clone())
            }
            Holder::Nobody | Holder::Stranger(_) => Check::ok("host", "no job runs on this host now"),
        });
    }
    if unreachable.len() > NAMED {
        checks.push(Check::fail(
            "host",
            format!("{} more", unreachable.len() - NAMED),
            "they do not answer either",
        ));
    }
    for job in following.jobs().iter() {
        let ranks = figure::counted(job.ranks().len(), "rank", "ranks");
        let hosts = figure::counted(job.hosts().len(), "host", "hosts");
        checks.push(Check::ok("job", format!("{}: {ranks} on {hosts}, {} live", job.name(), job.living())));
    }
    if !named {
        let ranks = following.jobs().iter().flat_map(Job::ranks).map(|(_, view)| view.pid()).collect();
        checks.extend(started::checks(args.connection.base()?, &ranks));
    }
    Ok(checks)
}
