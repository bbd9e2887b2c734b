//! Transfers slower than before, or than in similar groups. Waiting is excluded: only transfers are compared.

use std::collections::{BTreeMap, BTreeSet};

use xpu_wire::id::{CommunicatorId, HostName, Rank};

use super::{
    Class, Confidence, Cost, Evidence, Finding, Kind, Severity,
    cohort::{SPREADS, spread},
    evidence::link::SlowLink,
    pace::Growth,
};
use crate::{
    job::{Job, Route, Track, Traffic, median},
    phrase,
};

/// Share of its usual bandwidth below which a communicator is slow, if the deviation also exceeds
/// [`SPREADS`]. The limit leaves twice as much as for a GPU, because bandwidths vary more. Tuned.
const SLOW: f64 = 0.8;

/// Number of usual spreads for single windows, which vary more. By chance, [`RECENT`] windows in a row exceed
/// it only once in three million times.
const WINDOWS: f64 = 2.0;

/// The smallest spread that is assumed, even if the windows seem equal. Tuned.
const LEAST_SPREAD: f64 = 0.03;

/// Number of consecutive windows that must be slow, eight seconds; and the number after which a slow link is
/// reported even if others may follow: half of the time within which it must be named.
const RECENT: usize = 4;
const SETTLED: usize = 7;

/// Number of past windows that suffice for comparison, one more than the recent ones; or of similar groups,
/// the same as for ranks.
const PAST: usize = 5;
const GROUPS: usize = 4;

/// A slow communicator.
struct Slow {
    id: CommunicatorId,
    traffic: Traffic,
    rate: f64,
    usual: f64,
    /// The number of similar groups with which it is compared; `None` if it is compared with its own past.
    among: Option<usize>,
    run: usize,
}

fn recent(track: &Track) -> Option<f64> {
    (track.windows().len() >= RECENT).then(|| median(track.windows().take(RECENT).collect())).flatten()
}

/// Number of newest consecutive slow windows.
fn low_run(track: &Track, usual: f64, spread: f64) -> usize {
    let bound = (SLOW * usual).min(usual - SPREADS * spread.max(LEAST_SPREAD * usual));
    track.windows().take_while(|&rate| rate < bound).count()
}

fn spread_of(rates: &[f64], usual: f64) -> f64 {
    spread(rates.iter().map(|rate| rate - usual))
}

fn by_own_past(id: CommunicatorId, traffic: Traffic, track: &Track) -> Option<Slow> {
    let past: Vec<f64> = track.windows().skip(RECENT).collect();
    if past.len() < PAST {
        return None;
    }
    let usual = median(past.clone())?;
    let run = low_run(track, usual, spread_of(&past, usual));
    Some(Slow { id, traffic, rate: recent(track)?, usual, among: None, run })
}

pub(super) fn slow(job: &Job) -> Option<Finding> {
    let mut alike: BTreeMap<Traffic, Vec<(CommunicatorId, &Track)>> = BTreeMap::new();
    for (id, traffic, track) in job.transfers().tracks() {
        alike.entry(traffic).or_default().push((id, track));
    }
    let mut slow: BTreeMap<CommunicatorId, Slow> = BTreeMap::new();
    for (&traffic, tracks) in &alike {
        let rates: Vec<f64> = tracks.iter().filter_map(|(_, track)| recent(track)).collect();
        let windows: Vec<f64> = tracks.iter().flat_map(|(_, track)| track.windows().take(RECENT)).collect();
        // A window has few collectives, so even the windows of one group differ.
        let scatter = |usual| WINDOWS / SPREADS * spread_of(&windows, usual);
        let usual = median(rates.clone())
            .filter(|_| rates.len() >= GROUPS)
            .map(|usual| (usual, spread_of(&rates, usual).max(scatter(usual))));
        for &(id, track) in tracks {
            let among = usual.and_then(|(usual, spread)| {
                let run = low_run(track, usual, spread);
                Some(Slow { id, traffic, rate: recent(track)?, usual, among: Some(rates.len()), run })
            });
            let by_past = by_own_past(id, traffic, track);
            if let Some(found) =
                by_past.into_iter().chain(among).max_by_key(|slow| slow.run).filter(|slow| slow.run > 0)
            {
                slow.entry(id)
                    .and_modify(|known| {
                        if known.run < found.run {
                            known.run = found.run;
                        }
                    })
                    .or_insert(found);
            }
        }
    }
    // A single window may be slow by chance, or be the first of many. Slow communicators are reported
    // together.
    let longest = slow.values().map(|slow| slow.run).max()?;
    let undecided = slow.values().filter(|slow| slow.run < RECENT).count();
    slow.retain(|_, slow| slow.run >= RECENT);
    if longest < SETTLED && undecided * 4 > slow.len() {
        return None;
    }
    let worst = slow.values().min_by(|a, b| (a.rate / a.usual).total_cmp(&(b.rate / b.usual)))?;
    Some(finding(job, &slow, worst))
}

/// The cost of transfers between these ranks that have been slow for `since_s`, if the job's step times did not
/// clearly change. It is at most the part of the ranks' exposed communication by which the transfers take
/// longer, and less if that part is waiting or other transfers. Within this limit, it is the increase of the
/// step time since then, or half of the limit if the steps before it are unknown. `None` if neither is known.
fn cost(job: &Job, ranks: &[Rank], slow: &Slow, since_s: f64) -> Option<Cost> {
    let views: Vec<_> = ranks.iter().filter_map(|&rank| job.rank(rank)).collect();
    let exposed = median(views.iter().filter_map(|view| view.exposed()).collect());
    let most = exposed.map(|exposed| exposed * (1.0 - slow.rate / slow.usual));
    let pace = views.iter().find_map(|view| view.pace());
    let (share, error) = match (Growth::since(&views, since_s), most) {
        (Some(growth), most) => (growth.share().clamp(0.0, most.unwrap_or(1.0)), growth.error),
        (None, most) => (most? / 2.0, most? / 2.0),
    };
    Some(Cost::of(share, error, pace, job.gpus(), since_s))
}

/// The members of each communicator, by their last digests.
fn members(job: &Job) -> BTreeMap<CommunicatorId, Vec<(Rank, &HostName)>> {
    let mut routes: BTreeMap<CommunicatorId, Vec<(CommunicatorId, &Route)>> = BTreeMap::new();
    for (participants, route) in job.transfers().routes() {
        routes.entry(route.communicator).or_default().push((participants, route));
    }
    let mut members: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (rank, view) in job.ranks() {
        for state in view.latest().into_iter().flat_map(|digest| &digest.communicators) {
            members.entry(state.id).or_default().push((rank, view.host()));
            for &(participants, route) in routes.get(&state.id).into_iter().flatten() {
                if [route.from, route.to].contains(&state.rank) {
                    members.entry(participants).or_default().push((rank, view.host()));
                }
            }
        }
    }
    members
}

fn finding(job: &Job, slow: &BTreeMap<CommunicatorId, Slow>, worst: &Slow) -> Finding {
    let members = members(job);
    let hosts = |id: &CommunicatorId| -> BTreeSet<&HostName> {
        members.get(id).into_iter().flatten().map(|&(_, host)| host).collect()
    };
    // The hosts that all slow communicators include. Such a host is the cause if no other communicator
    // includes it.
    let mut common = hosts(&worst.id);
    for id in slow.keys() {
        common = common.intersection(&hosts(id)).copied().collect();
    }
    let known = job.transfers().tracks().map(|(id, ..)| id).collect::<BTreeSet<_>>();
    let elsewhere: BTreeSet<_> = known.iter().filter(|id| !slow.contains_key(id)).flat_map(hosts).collect();
    let suspects: Vec<_> = common.iter().filter(|host| !elsewhere.contains(*host)).copied().collect();
    let pair = members.get(&worst.id).is_some_and(|members| members.len() == 2);
    let class =
        if suspects.len() == 1 && hosts(&worst.id).len() > 1 || pair { Class::Link } else { Class::Group };
    let mut ranks: Vec<Rank> = slow
        .keys()
        .filter_map(|id| members.get(id))
        .flatten()
        .filter(|(_, host)| class == Class::Group || pair || suspects.contains(host))
        .map(|&(rank, _)| rank)
        .collect();
    ranks.sort_unstable();
    ranks.dedup();
    let advice = if class == Class::Link {
        "look at that host's network and NVLink counters (nvidia-smi nvlink -e, ibstat, ethtool -S): retrained, flapping or congested links".to_owned()
    } else {
        format!("look for other traffic, and at link errors on the hosts of {}", phrase::ranks(&ranks))
    };
    // A window lasts for two seconds.
    let since_s = 2.0 * slow.values().map(|slow| slow.run).fold(RECENT, usize::max) as f64;
    let cost = cost(job, &ranks, worst, since_s);
    Finding {
        kind: Kind::SlowLink,
        class,
        ranks,
        confidence: if worst.among.is_some() || class == Class::Link {
            Confidence::Likely
        } else {
            Confidence::Guess
        },
        since_s,
        evidence: Evidence::SlowLink(SlowLink {
            operation: worst.traffic.operation,
            communicator: job.transfers().route(worst.id).map_or(worst.id, |route| route.communicator),
            size: worst.traffic.size,
            gb_s: worst.rate,
            usual_gb_s: worst.usual,
            groups: worst.among,
            slow: slow.len(),
            known: known.len(),
            passes: suspects.first().filter(|_| class == Class::Link).map(|&host| host.clone()),
        }),
        advice,
        collective: None,
        severity: Severity::Slow,
        cost,
    }
}
