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
    job::{Job, Route, Track, Traffic, Window, median},
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

/// Number of past windows that suffice for comparison, one more than the recent ones. Before the largest
/// decrease, the number is of windows of two seconds: one minute, because the decrease was chosen. And the number
/// of similar groups, the same as for ranks.
const PAST: usize = 5;
const LONG_PAST: f64 = 30.0;
const GROUPS: usize = 4;

/// The share of the windows since a decrease that must be slow. Otherwise, the link was fast again meanwhile.
const MOST: f64 = 0.75;

/// A slow communicator.
struct Slow {
    id: CommunicatorId,
    traffic: Traffic,
    rate: f64,
    usual: f64,
    /// The number of similar groups with which it is compared; `None` if it is compared with its own past.
    among: Option<usize>,
    /// Number of newest consecutive slow windows, and the time since it became slow.
    run: usize,
    since_s: f64,
}

/// The bandwidth with which windows are compared.
#[derive(Clone, Copy)]
struct Usual {
    gb_s: f64,
    spread: f64,
}

impl Usual {
    fn of(rates: &[f64]) -> Option<Self> {
        let gb_s = median(rates.to_vec())?;
        Some(Self { gb_s, spread: spread(rates.iter().map(|rate| rate - gb_s)) })
    }

    fn is_above(&self, rate: f64) -> bool {
        let margin = SPREADS * self.spread.max(LEAST_SPREAD * self.gb_s);
        rate < (SLOW * self.gb_s).min(self.gb_s - margin)
    }
}

fn recent(track: &Track) -> Option<f64> {
    let rates: Vec<_> = track.windows().take(RECENT).map(|window| window.gb_s).collect();
    if rates.len() == RECENT { median(rates) } else { None }
}

/// Time since this window began.
fn since(track: &Track, window: &Window) -> f64 {
    track.last().since(window.began).as_secs_f64()
}

impl Slow {
    /// Compares the newest windows of a track; `None` if they are too few.
    fn of(id: CommunicatorId, traffic: Traffic, track: &Track, usual: Usual) -> Option<Self> {
        let rate = recent(track)?;
        let slow: Vec<_> = track.windows().take_while(|window| usual.is_above(window.gb_s)).collect();
        let since_s = slow.last().map_or(0.0, |first| since(track, first));
        Some(Self { id, traffic, rate, usual: usual.gb_s, among: None, run: slow.len(), since_s })
    }

    /// Compares a track with its own past: all windows before the recent ones; or, as it may have become slow
    /// long ago, those before its bandwidth decreased most.
    fn by_own_past(id: CommunicatorId, traffic: Traffic, track: &Track) -> Option<Self> {
        let highest = track.windows().map(|window| window.gb_s).fold(0.0, f64::max);
        // Most communicators end here.
        if track.windows().next()?.gb_s >= SLOW * highest {
            return None;
        }
        let windows: Vec<_> = track.windows().collect();
        let (after, before) = windows.split_at(decrease(&windows)?);
        let is_long = weight(before) >= LONG_PAST;
        let pasts = [Some(&windows[RECENT..]), is_long.then_some(before)];
        let compared = pasts.into_iter().flatten().filter_map(|past| {
            let rates: Vec<_> = past.iter().map(|window| window.gb_s).collect();
            let usual = Usual::of(&rates)?;
            Some((Self::of(id, traffic, track, usual)?, usual))
        });
        let (found, usual) = compared.max_by_key(|(found, _)| found.run)?;
        // A window among them may be as fast as before by chance.
        let slow: Vec<_> = after.iter().copied().filter(|window| usual.is_above(window.gb_s)).collect();
        let is_since_then = found.run >= RECENT && weight(&slow) >= MOST * weight(after);
        let since_s = after.last().filter(|_| is_since_then).map_or(0.0, |first| since(track, first));
        Some(Self { since_s: since_s.max(found.since_s), ..found })
    }
}

fn weight(windows: &[&Window]) -> f64 {
    windows.iter().map(|window| window.weight).sum()
}

/// Number of newest windows after the moment that divides them best into slow ones and faster ones before: the
/// one with the largest sum of squares between the two groups.
fn decrease(windows: &[&Window]) -> Option<usize> {
    let sum = |windows: &[&Window]| {
        windows.iter().fold((0.0, 0.0), |(weight, sum), window| {
            (weight + window.weight, sum + window.weight * window.gb_s)
        })
    };
    let (all_weight, all_sum) = sum(windows);
    let (mut weight, mut total) = sum(windows.get(..RECENT - 1)?);
    let mut best: Option<(f64, usize)> = None;
    for (at, window) in
        windows.iter().enumerate().skip(RECENT - 1).take_while(|(at, _)| at + PAST < windows.len())
    {
        weight += window.weight;
        total += window.weight * window.gb_s;
        let by = (all_sum - total) / (all_weight - weight) - total / weight;
        let between = by * by * weight * (all_weight - weight);
        if by > 0.0 && best.is_none_or(|(most, _)| between > most) {
            best = Some((between, at + 1));
        }
    }
    best.map(|(_, after)| after)
}

pub(super) fn slow(job: &Job) -> Option<Finding> {
    let mut alike: BTreeMap<Traffic, Vec<(CommunicatorId, &Track)>> = BTreeMap::new();
    for (id, traffic, track) in job.transfers().tracks() {
        alike.entry(traffic).or_default().push((id, track));
    }
    let mut slow: BTreeMap<CommunicatorId, Slow> = BTreeMap::new();
    for (&traffic, tracks) in &alike {
        let rates: Vec<f64> = tracks.iter().filter_map(|(_, track)| recent(track)).collect();
        let newest = tracks.iter().flat_map(|(_, track)| track.windows().take(RECENT));
        let windows: Vec<f64> = newest.map(|window| window.gb_s).collect();
        // A window has few collectives, so even the windows of one group differ.
        let usual = Usual::of(&rates).filter(|_| rates.len() >= GROUPS).map(|usual| {
            let scatter = spread(windows.iter().map(|rate| rate - usual.gb_s));
            Usual { spread: usual.spread.max(WINDOWS / SPREADS * scatter), ..usual }
        });
        for &(id, track) in tracks {
            let among = usual.and_then(|usual| Slow::of(id, traffic, track, usual));
            let among = among.map(|slow| Slow { among: Some(rates.len()), ..slow });
            let by_past = Slow::by_own_past(id, traffic, track);
            // The own past shows best when it became slow.
            let since_s = by_past.as_ref().filter(|slow| slow.run >= RECENT).map(|slow| slow.since_s);
            let longest = by_past.into_iter().chain(among).max_by_key(|slow| slow.run);
            let Some(mut found) = longest.filter(|slow| slow.run > 0) else { continue };
            found.since_s = found.since_s.max(since_s.unwrap_or(0.0));
            slow.entry(id)
                .and_modify(|known| {
                    known.run = known.run.max(found.run);
                    known.since_s = known.since_s.max(found.since_s);
                })
                .or_insert(found);
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
    let since_s = slow.values().map(|slow| slow.since_s).fold(0.0, f64::max);
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
