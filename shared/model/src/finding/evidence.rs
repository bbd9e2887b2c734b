//! The evidence of a finding: typed figures. JSON contains them as numbers, the sentence as text.

pub mod cost;
mod details;
pub mod device;
pub mod exit;
pub mod hang;
pub mod headline;
pub mod link;
pub mod neighbour;
pub mod pace;
pub mod slow;

use std::fmt;

pub use neighbour::Neighbours;
use serde::{Serialize, Serializer, ser::SerializeMap as _};

use crate::job::MainThreadSeen;

/// The evidence of one kind of finding: its sentence, and its figures.
pub trait WithFigures: fmt::Display {
    fn figures(&self, to: &mut Figures);
}

#[derive(Clone, Debug, PartialEq)]
pub enum Evidence {
    SlowGemms(slow::SlowGemms),
    LateHost(slow::LateHost),
    MoreWork(slow::MoreWork),
    Straggler(cost::Straggler),
    Pauses(pace::Pauses),
    Regression(pace::Regression),
    PastRun(pace::PastRun),
    SlowLink(link::SlowLink),
    FullMemory(device::FullMemory),
    GrowingMemory(device::GrowingMemory),
    Xid(device::XidErrors),
    Exited(exit::Exited),
    Stopped(hang::Stopped),
    Diverged(hang::Diverged),
    Forming(hang::Forming),
    NotEntered(hang::NotEntered),
    Deadlock(hang::Deadlock),
    Mismatch(hang::Mismatch),
    OutOfStep(hang::OutOfStep),
    NotLaunched(hang::NotLaunched),
    NotStarted(hang::NotStarted),
    InKernel(hang::InKernel),
    Partial(hang::Partial),
    Unmatched(hang::Unmatched),
    Exchanging(hang::Exchanging),
    Idle(hang::Idle),
    Elsewhere(hang::Elsewhere),
    /// Any of the above, and where the main thread of a rank is.
    Sampled(Box<Evidence>, MainThreadSeen),
    /// With the other processes on the GPU of its rank.
    Shared(Box<Evidence>, Neighbours),
    /// Any of the above, about hosts that have not reported for this number of seconds.
    Aged(Box<Evidence>, f64),
    /// The evidence of a hang, and the progress of each rank's GPU.
    OnGpus(Box<Evidence>, Vec<hang::GpusAt>),
    /// The evidence of a hang, and the places of the ranks that it names, as far as known.
    At(Box<Evidence>, Vec<hang::RankPlace>),
    /// The evidence of a hang, and the first end of a rank after it.
    Ended(Box<Evidence>, Box<exit::Exited>),
}

impl Evidence {
    fn reported(&self) -> &dyn WithFigures {
        match self {
            Self::SlowGemms(evidence) => evidence,
            Self::LateHost(evidence) => evidence,
            Self::MoreWork(evidence) => evidence,
            Self::Straggler(evidence) => evidence,
            Self::Pauses(evidence) => evidence,
            Self::Regression(evidence) => evidence,
            Self::PastRun(evidence) => evidence,
            Self::SlowLink(evidence) => evidence,
            Self::FullMemory(evidence) => evidence,
            Self::GrowingMemory(evidence) => evidence,
            Self::Xid(evidence) => evidence,
            Self::Exited(evidence) => evidence,
            Self::Stopped(evidence) => evidence,
            Self::Diverged(evidence) => evidence,
            Self::Forming(evidence) => evidence,
            Self::NotEntered(evidence) => evidence,
            Self::Deadlock(evidence) => evidence,
            Self::Mismatch(evidence) => evidence,
            Self::OutOfStep(evidence) => evidence,
            Self::NotLaunched(evidence) => evidence,
            Self::NotStarted(evidence) => evidence,
            Self::InKernel(evidence) => evidence,
            Self::Partial(evidence) => evidence,
            Self::Unmatched(evidence) => evidence,
            Self::Exchanging(evidence) => evidence,
            Self::Idle(evidence) => evidence,
            Self::Elsewhere(evidence) => evidence,
            Self::Sampled(of, _)
            | Self::Shared(of, _)
            | Self::Aged(of, _)
            | Self::OnGpus(of, _)
            | Self::At(of, _)
            | Self::Ended(of, _) => of.reported(),
        }
    }

    /// Its longer steps, with or without the place of a main thread.
    fn regression(&self) -> Option<&pace::Regression> {
        match self {
            Self::Regression(of) => Some(of),
            Self::Sampled(of, _) => of.regression(),
            _ => None,
        }
    }

    /// Whether the host of its rank launches too late because of the program. The place of its main thread is
    /// then more useful than general advice.
    pub(super) fn launches_late(&self) -> bool {
        match self {
            Self::Straggler(straggler) => matches!(straggler.cause, cost::Cause::WaitsLess { .. }),
            Self::Regression(regression) => regression.late.is_some(),
            Self::LateHost(_) => true,
            Self::Pauses(pauses) => !pauses.ranks.is_empty(),
            Self::Sampled(of, _) | Self::Aged(of, _) => of.launches_late(),
            _ => false,
        }
    }

    /// Whether most of its rank's delay has no known cause: a thread that holds the GIL may be that cause.
    pub(super) fn is_mostly_unexplained(&self) -> bool {
        match self {
            Self::Straggler(straggler) => straggler.explained_pct.is_none_or(|pct| pct < 50.0),
            Self::Sampled(of, _) | Self::Aged(of, _) => of.is_mostly_unexplained(),
            _ => false,
        }
    }

    /// Whether threads of its rank wait for CPU cores.
    pub(super) fn lacks_cpu(&self) -> bool {
        match self {
            Self::Straggler(straggler) => matches!(straggler.cause, cost::Cause::LacksCpu(_)),
            Self::Regression(regression) => regression.lacks_cpu.is_some(),
            Self::Sampled(of, _) | Self::Aged(of, _) => of.lacks_cpu(),
            _ => false,
        }
    }

    /// Where the main thread of its rank is, if that was sampled.
    pub fn main_thread(&self) -> Option<&MainThreadSeen> {
        match self {
            Self::Sampled(_, seen) => Some(seen),
            Self::Aged(of, _) => of.main_thread(),
            _ => None,
        }
    }

    /// The other processes on the GPU of its rank, if they may be the cause.
    pub fn neighbours(&self) -> Option<&Neighbours> {
        match self {
            Self::Shared(_, neighbours) => Some(neighbours),
            Self::Aged(of, _) => of.neighbours(),
            _ => None,
        }
    }

    /// Seconds since its hosts last reported, if that is long ago.
    pub fn age_s(&self) -> Option<f64> {
        match self {
            Self::Aged(_, age) => Some(*age),
            _ => None,
        }
    }

    /// The progress of each rank's GPU in the collective that does not end, the fewest ranks first.
    pub fn gpus(&self) -> &[hang::GpusAt] {
        match self {
            Self::OnGpus(_, gpus) => gpus,
            Self::At(of, _) | Self::Ended(of, _) => of.gpus(),
            _ => &[],
        }
    }

    /// [`Self::gpus`] as a sentence of its own.
    pub fn gpus_sentence(&self) -> Option<String> {
        let gpus = self.gpus();
        (!gpus.is_empty()).then(|| format!("on the GPUs: {}", hang::sentence(gpus)))
    }

    /// Where the main threads of the ranks are for which the job waits; empty until their stacks are known.
    pub fn places(&self) -> &[hang::RankPlace] {
        match self {
            Self::At(_, places) => places,
            Self::Ended(of, _) => of.places(),
            _ => &[],
        }
    }

    /// The first end of a rank after a hang.
    pub fn end(&self) -> Option<&exit::Exited> {
        match self {
            Self::Ended(_, end) => Some(end),
            _ => None,
        }
    }

    /// Its numbers, under the names that documents use.
    pub fn figures(&self) -> Figures {
        let mut figures = Figures::default();
        self.reported().figures(&mut figures);
        figures.put("unheard_s", self.age_s());
        figures
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reported().fmt(f)?;
        self.main_thread().map_or(Ok(()), |seen| write!(f, "; {seen}"))?;
        self.neighbours().map_or(Ok(()), |neighbours| write!(f, "; {neighbours}"))?;
        self.places().iter().try_for_each(|place| write!(f, "; {place}"))?;
        self.gpus_sentence().map_or(Ok(()), |gpus| write!(f, "; {gpus}"))?;
        self.age_s().map_or(Ok(()), |age| write!(f, "; {}", aged(age)))?;
        self.end().map_or(Ok(()), |end| write!(f, "; then {end}"))
    }
}

fn aged(age: f64) -> String {
    format!("these figures are {age:.0} s old: the host has not reported since")
}

/// In documents, the sentence, its figures and the place of the main thread are at the same level.
impl Serialize for Evidence {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("evidence", &self.to_string())?;
        map.serialize_entry("figures", &self.figures())?;
        if let Some(seen) = self.main_thread() {
            map.serialize_entry("main_thread", seen)?;
        }
        if let Some(neighbours) = self.neighbours() {
            map.serialize_entry("neighbours", neighbours)?;
        }
        if !self.gpus().is_empty() {
            map.serialize_entry("gpus", self.gpus())?;
        }
        if !self.places().is_empty() {
            map.serialize_entry("places", self.places())?;
        }
        map.end()
    }
}

/// Numbers by name, with the unit as suffix: `_ms`, `_s`, `_pct`, `_tflops`, `_gb_s`, `_mhz`, `_c`, `_bytes`;
/// counts have none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures(Vec<(&'static str, f64)>);

/// Significant digits of a measured figure.
const DIGITS: i32 = 4;

impl Figures {
    /// Adds a measured figure, if it is known.
    pub(super) fn put(&mut self, name: &'static str, value: impl Into<Option<f64>>) {
        if let Some(value) = value.into().filter(|value| value.is_finite()) {
            self.0.push((name, rounded(value)));
        }
    }

    /// Adds a count.
    pub(super) fn count(&mut self, name: &'static str, value: impl Into<Option<u64>>) {
        if let Some(value) = value.into() {
            self.0.push((name, value as f64));
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&'static str, f64)> {
        self.0.iter().copied()
    }

    pub fn get(&self, name: &str) -> Option<f64> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }
}

/// Rounds to four significant digits, but never within the whole part.
fn rounded(value: f64) -> f64 {
    let before = if value == 0.0 { 0 } else { value.abs().log10().floor() as i32 + 1 };
    let scale = 10_f64.powi((DIGITS - before).clamp(0, 9));
    (value * scale).round() / scale
}

impl Serialize for Figures {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in self.iter() {
            // Whole numbers have no decimal point.
            let whole = value as i64;
            if whole as f64 == value {
                map.serialize_entry(name, &whole)?;
            } else {
                map.serialize_entry(name, &value)?;
            }
        }
        map.end()
    }
}

#[cfg(test)]
mod tests;
