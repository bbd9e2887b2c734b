//! GPUs with problems, by the driver's library.

use std::{fmt, time::Duration};

use xpu_wire::{
    frame::{DeviceReading, Throttle, Xid},
    id::Rank,
    unit::Moment,
};

use super::{
    Class, Confidence, Evidence, Figures, Finding, Kind, Severity, cohort,
    evidence::device::{FullMemory, XidErrors},
};
use crate::job::{Job, RankView, median};

/// Share of the others' clock below which a GPU's clock is too low: half of the deviation at which its GEMMs
/// count as slow.
const LOW: f64 = 0.95;

/// Number of last readings that must agree, the same as for digests.
const READINGS: usize = cohort::RECENT;
const PERSISTENT: usize = cohort::PERSISTENT;

/// Share above which device memory is nearly full: an allocation of a few hundred megabytes fails.
const FULL: f64 = 0.98;

/// Reasons that no healthy GPU has under load.
const HARD: Throttle = Throttle(
    Throttle::HARDWARE_SLOWDOWN.0
        | Throttle::SOFTWARE_THERMAL.0
        | Throttle::HARDWARE_THERMAL.0
        | Throttle::POWER_BRAKE.0,
);

/// Time for which an error is reported.
const RECENT: Duration = Duration::from_mins(10);

fn readings(view: &RankView) -> impl Iterator<Item = &DeviceReading> {
    let known = view.device().is_some_and(|reading| !reading.is_stale());
    view.device_readings().take(if known { READINGS } else { 0 })
}

fn clock(view: &RankView) -> Option<f64> {
    median(readings(view).filter_map(|reading| reading.sm_clock.map(f64::from)).collect())
}

/// The median clock of the ranks; of an even number, the higher middle one, because one of two may be held
/// down.
pub(super) fn usual_clock<'a>(ranks: impl Iterator<Item = &'a RankView>) -> Option<f64> {
    let mut clocks: Vec<f64> = ranks.filter_map(clock).collect();
    clocks.sort_unstable_by(f64::total_cmp);
    clocks.get(clocks.len() / 2).copied()
}

/// A rank's clocks compared with others', by the driver.
#[derive(Clone, Debug, PartialEq)]
pub enum Clocks {
    /// The clocks are held down.
    Held(HeldClock),
    /// The clocks are as high as the others'.
    Well {
        mhz: f64,
        usual_mhz: f64,
    },
    Unknown,
}

#[derive(Clone, Debug, PartialEq)]
pub struct HeldClock {
    pub mhz: f64,
    pub usual_mhz: f64,
    /// The reasons; none if the driver does not report them.
    pub reasons: Throttle,
    pub temperature_c: Option<u32>,
}

impl fmt::Display for HeldClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mhz, usual_mhz, reasons, temperature_c } = self;
        write!(f, "its SM clock is {mhz:.0} MHz instead of {usual_mhz:.0}")?;
        if *reasons != Throttle(0) {
            write!(f, ", held down: {reasons}")?;
        }
        temperature_c.map_or(Ok(()), |degrees| write!(f, ", {degrees} °C"))
    }
}

/// Share of a cost, or of the GEMMs' slowdown for a clock, from which a fact is reported as the cause. At
/// most two facts can reach this share. GEMMs that memory limits slow down less than their clock.
pub(super) const EXPLAINS: f64 = 0.35;

impl Clocks {
    /// `usual`: the median clock of the ranks.
    pub(super) fn of(view: &RankView, usual: Option<f64>) -> Self {
        let known = || Some((view, clock(view)?, view.device()?, usual?));
        let Some((view, mhz, latest, usual_mhz)) = known() else { return Self::Unknown };
        // A power cap that affects all GPUs equally is no reason.
        let reasons = latest.throttle.filter(|reasons| reasons.is_held()).unwrap_or_default();
        let most = f64::from(latest.sm_clock_max.unwrap_or(0));
        // If all GPUs are throttled equally, as in a hot room, only the reasons count.
        let usual_mhz = if reasons.0 & HARD.0 != 0 { usual_mhz.max(most) } else { usual_mhz };
        let low = |reading: &&DeviceReading| {
            reading.sm_clock.is_some_and(|clock| f64::from(clock) < LOW * usual_mhz)
        };
        if readings(view).filter(low).count() >= PERSISTENT {
            let temperature_c = latest.temperature;
            return Self::Held(HeldClock { mhz, usual_mhz, reasons, temperature_c });
        }
        // A GPU with a hard throttle may have a low clock at the next reading, even if it has none now.
        if mhz < LOW * usual_mhz || reasons.0 & HARD.0 != 0 {
            return Self::Unknown;
        }
        Self::Well { mhz, usual_mhz }
    }

    /// For GPUs that have all become slower: the median GPU's clock compared with its highest, if most clocks
    /// are held down.
    pub(super) fn of_all(job: &Job) -> Self {
        let held = |view: &RankView| {
            let (mhz, latest) = (clock(view)?, view.device()?);
            let reasons = latest.throttle.filter(|reasons| reasons.is_held())?;
            let usual_mhz = f64::from(latest.sm_clock_max?);
            let temperature_c = latest.temperature;
            (mhz < LOW * usual_mhz).then_some(HeldClock { mhz, usual_mhz, reasons, temperature_c })
        };
        let mut all: Vec<_> = job.ranks().filter_map(|(_, view)| held(view)).collect();
        if all.len() * 2 <= job.ranks().len() {
            return Self::Unknown;
        }
        all.sort_by(|one, other| one.mhz.total_cmp(&other.mhz));
        Self::Held(all.swap_remove(all.len() / 2))
    }

    /// The verdict for GEMMs at this share of their usual rate. A clock that is lowered by a much smaller
    /// share is not the cause.
    pub(super) fn or_no_cause_at(self, rate: f64) -> Self {
        match self {
            Self::Held(held) if 1.0 - held.mhz / held.usual_mhz < EXPLAINS * (1.0 - rate) => Self::Unknown,
            clocks => clocks,
        }
    }

    /// Where to look for the cause of its slow GEMMs.
    pub(super) fn advice(&self) -> &'static str {
        let held = |any: u64| matches!(self, Self::Held(held) if held.reasons.0 & any != 0);
        match self {
            _ if held(Throttle::SOFTWARE_THERMAL.0 | Throttle::HARDWARE_THERMAL.0) => {
                "look at that GPU's cooling: fans, airflow, neighbouring devices (nvidia-smi -q -d PERFORMANCE,TEMPERATURE)"
            }
            _ if held(Throttle::POWER_BRAKE.0) => {
                "look at that host's power supply, which made the GPU slow down (nvidia-smi -q -d PERFORMANCE,POWER)"
            }
            _ if held(Throttle::APPLICATION_CLOCKS.0) => {
                "that GPU's clocks were set lower: nvidia-smi -q -d CLOCK shows them, nvidia-smi -rac and -rgc reset them"
            }
            Self::Held(_) => {
                "look at that GPU's cooling, power supply and clock limits (nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER)"
            }
            Self::Well { .. } => {
                "its clocks match the others': look for other processes on its GPU (nvidia-smi), for kernels that run beside its GEMMs, and at their shapes (xpu-top status --rank)"
            }
            Self::Unknown => {
                "look for other processes on its GPU (nvidia-smi), and at its clocks, power and temperature (nvidia-smi -q -d PERFORMANCE)"
            }
        }
    }

    pub(super) fn figures(&self, to: &mut Figures) {
        let (mhz, usual, degrees) = match self {
            Self::Held(held) => (held.mhz, held.usual_mhz, held.temperature_c),
            Self::Well { mhz, usual_mhz } => (*mhz, *usual_mhz, None),
            Self::Unknown => return,
        };
        to.put("sm_clock_mhz", mhz);
        to.put("usual_sm_clock_mhz", usual);
        to.put("temperature_c", degrees.map(f64::from));
    }
}

/// Whether the driver shows that its clocks are not held down now.
pub(super) fn is_unheld(view: &RankView) -> bool {
    readings(view).next().and_then(|reading| reading.throttle).is_some_and(|reasons| !reasons.is_held())
}

/// Whether the driver can report errors on its GPU, and has reported none.
pub(super) fn is_without_xid(view: &RankView) -> bool {
    readings(view).next().is_some_and(|reading| reading.xids == Some(0))
}

pub(super) fn troubles(job: &Job, now: Moment) -> Vec<Finding> {
    errors(job, now).into_iter().chain(full(job)).collect()
}

/// Failing programs cause errors too, which do not concern the GPU.
fn is_of_hardware(code: u32) -> bool {
    !matches!(code, 13 | 31 | 43 | 45)
}

fn errors(job: &Job, now: Moment) -> Option<Finding> {
    let at = |view: &RankView, xid: &Xid| job.common(view.host(), xid.at);
    let recent = |view: &RankView| {
        let reading = view.device()?;
        reading.last_xid.filter(|xid| is_of_hardware(xid.code) && now.since(at(view, xid)) < RECENT)
    };
    let broken: Vec<_> = job
        .ranks()
        .filter(|(_, view)| view.is_alive())
        .filter_map(|(rank, view)| Some((rank, view, recent(view)?)))
        .collect();
    let &(first, view, xid) = broken.iter().max_by_key(|(_, view, xid)| at(view, xid))?;
    let since_s = now.since(at(view, &xid)).as_secs_f64();
    Some(Finding {
        kind: Kind::Device,
        class: Class::Xid,
        ranks: broken.iter().map(|&(rank, ..)| rank).collect(),
        confidence: Confidence::Certain,
        since_s,
        evidence: Evidence::Xid(XidErrors { rank: first, host: view.host().clone(), xid, ago_s: since_s }),
        advice: "look at dmesg on that host, and replace the GPU if it happens again (nvidia-smi -q -d ECC,PAGE_RETIREMENT)".to_owned(),
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
    let evidence = Evidence::FullMemory(FullMemory {
        ranks: named.clone(),
        worst: first,
        host: view.host().clone(),
        free: free(view)?,
        total: view.device()?.memory_total?,
    });
    Some(Finding {
        kind: Kind::Device,
        class: Class::Memory,
        ranks: named,
        confidence: Confidence::Likely,
        since_s: readings(view).count() as f64,
        evidence,
        advice: "allocations may fail, or wait until memory is freed: use a smaller batch, or move other processes off this GPU (nvidia-smi)".to_owned(),
        collective: None,
        severity: Severity::Minor,
        cost: None,
    })
}
