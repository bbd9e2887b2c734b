//! GPUs in trouble, by what the driver's library says of them.

use std::time::Duration;

use super::{Class, Confidence, Finding, Kind, Severity, phrase};
use crate::{
    frame::{DeviceReading, Throttle, Xid},
    id::Rank,
    job::{Job, RankView, median},
    unit::Moment,
};

/// Below this share of the others' clock one is held back.
const LOW: f64 = 0.95;

/// Readings that must say so, of the last ones.
const READINGS: usize = 5;
const PERSISTENT: usize = 3;

/// Above this share device memory is nearly full: an allocation of a few hundred megabytes fails.
const FULL: f64 = 0.98;

/// What no healthy GPU meets under load.
const HARD: Throttle = Throttle(
    Throttle::HARDWARE_SLOWDOWN.0
        | Throttle::SOFTWARE_THERMAL.0
        | Throttle::HARDWARE_THERMAL.0
        | Throttle::POWER_BRAKE.0,
);

/// How long an error is told of.
const RECENT: Duration = Duration::from_mins(10);

fn readings(view: &RankView) -> impl Iterator<Item = &DeviceReading> {
    let known = view.device().is_some_and(|reading| !reading.is_stale());
    view.device_readings().take(if known { READINGS } else { 0 })
}

fn clock(view: &RankView) -> Option<f64> {
    median(readings(view).filter_map(|reading| reading.sm_clock.map(f64::from)).collect())
}

/// The clock of the ranks in the middle.
pub(super) fn usual_clock<'a>(ranks: impl Iterator<Item = &'a RankView>) -> Option<f64> {
    median(ranks.filter_map(clock).collect())
}

/// In a few words, how a rank's clocks are held down against those of others; `None` where they are not, or it is not known.
pub(super) fn held(view: &RankView, usual: f64) -> Option<String> {
    let clock = clock(view)?;
    let latest = view.device()?;
    // What the cap of power takes from all alike is no reason.
    let reasons = latest.throttle.filter(|reasons| reasons.is_held()).unwrap_or_default();
    let most = f64::from(latest.sm_clock_max.unwrap_or(0));
    // Where all are held alike, as a hot room does, only what holds them tells.
    let usual = if reasons.0 & HARD.0 != 0 { usual.max(most) } else { usual };
    let low =
        readings(view).filter(|reading| reading.sm_clock.is_some_and(|clock| f64::from(clock) < LOW * usual));
    if low.count() < PERSISTENT {
        return None;
    }
    let because = if reasons == Throttle(0) { String::new() } else { format!(", held down: {reasons}") };
    let degrees = latest.temperature.map_or_else(String::new, |degrees| format!(", {degrees} °C"));
    Some(format!("its SM clock is {clock:.0} MHz where {usual:.0} are usual{because}{degrees}"))
}

pub(super) fn troubles(job: &Job, now: Moment) -> Vec<Finding> {
    errors(job, now).into_iter().chain(full(job)).collect()
}

/// Programs that break leave errors behind, too: those say nothing of the GPU.
fn is_of_hardware(code: u32) -> bool {
    !matches!(code, 13 | 31 | 43 | 45)
}

fn errors(job: &Job, now: Moment) -> Option<Finding> {
    let at = |view: &RankView, xid: &Xid| job.common(view.host(), xid.at);
    let told = |view: &RankView| {
        let reading = view.device()?;
        reading.last_xid.filter(|xid| is_of_hardware(xid.code) && now.since(at(view, xid)) < RECENT)
    };
    let broken: Vec<_> = job
        .ranks()
        .filter(|(_, view)| view.is_alive())
        .filter_map(|(rank, view)| Some((rank, view, told(view)?)))
        .collect();
    let &(first, view, xid) = broken.iter().max_by_key(|(_, view, xid)| at(view, xid))?;
    let since_s = now.since(at(view, &xid)).as_secs_f64();
    let means = xid.means().map_or_else(String::new, |means| format!(" ({means})"));
    let evidence = format!(
        "the driver told of Xid {}{means} on the GPU of rank {first} ({}) {since_s:.0} s ago",
        xid.code,
        view.host()
    );
    Some(Finding {
        kind: Kind::Device,
        class: Class::Xid,
        ranks: broken.iter().map(|&(rank, ..)| rank).collect(),
        confidence: Confidence::Certain,
        since_s,
        evidence,
        advice: "look at dmesg on that host, and take the GPU out if it comes again (nvidia-smi -q -d ECC,PAGE_RETIREMENT)".to_owned(),
        collective: None,
        severity: Severity::Slow,
        cost: None,
    })
}

fn full(job: &Job) -> Option<Finding> {
    let share = |reading: &DeviceReading| {
        Some(reading.memory_used? as f64 / reading.memory_total.filter(|&total| total > 0)? as f64)
    };
    let is_full = |view: &RankView| {
        let full = readings(view).filter(|reading| share(reading).is_some_and(|share| share > FULL));
        full.count() >= PERSISTENT
    };
    let ranks: Vec<(Rank, &RankView)> =
        job.ranks().filter(|(_, view)| view.is_alive() && is_full(view)).collect();
    let free = |view: &RankView| {
        let reading = view.device()?;
        Some(reading.memory_total?.saturating_sub(reading.memory_used?))
    };
    let (first, view) = *ranks.iter().min_by_key(|(_, view)| free(view))?;
    let named: Vec<Rank> = ranks.iter().map(|&(rank, _)| rank).collect();
    let evidence = format!(
        "device memory is nearly full on {}: rank {first} ({}) has {} left of {}",
        phrase::ranks(&named),
        view.host(),
        phrase::bytes(free(view)?),
        phrase::bytes(view.device()?.memory_total?),
    );
    Some(Finding {
        kind: Kind::Device,
        class: Class::Memory,
        ranks: named,
        confidence: Confidence::Likely,
        since_s: readings(view).count() as f64,
        evidence,
        advice: "expect failing allocations, or an allocator that frees and waits: a smaller batch, or other processes off this GPU (nvidia-smi)".to_owned(),
        collective: None,
        severity: Severity::Minor,
        cost: None,
    })
}
