//! The faults of a demo, parsed from the command line.

use std::str::FromStr;

/// A rank and a factor: `6:1.3`
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlowGpu {
    rank: u32,
    factor: f64,
}

/// A rank and a clock in MHz: `2:1275`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttle {
    rank: u32,
    megahertz: u32,
}

/// A rank and a delay per step: `3:40ms`
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlowHost {
    rank: u32,
    milliseconds: f64,
}

/// A stage and a number of layers: `3:2`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoreLayers {
    pub stage: u32,
    pub layers: u32,
}

/// A step and a rank: `25:3`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hang {
    step: u64,
    rank: u32,
}

/// Largest slowdown factor; 60 times as many milliseconds are the largest delay.
const MAX_FACTOR: f64 = 1000.0;

impl FromStr for SlowGpu {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (rank, factor) = pair(text).ok_or("write RANK:FACTOR, for example 6:1.3")?;
        let factor = positive(factor).filter(|factor| *factor <= MAX_FACTOR);
        Ok(Self { rank, factor: factor.ok_or("the factor is a number up to 1000, for example 6:1.3")? })
    }
}

impl FromStr for Throttle {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = "write RANK:MHz, for example 2:1275; the simulated GPUs run at 1980 MHz";
        let (rank, megahertz) = pair(text).ok_or(wrong)?;
        let megahertz = megahertz.parse().ok().filter(|clock| (100..1980).contains(clock)).ok_or(wrong)?;
        Ok(Self { rank, megahertz })
    }
}

impl FromStr for SlowHost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = "write RANK:TIME in milliseconds or seconds, for example 3:40ms";
        let (rank, time) = pair(text).ok_or(wrong)?;
        let milliseconds = match (time.strip_suffix("ms"), time.strip_suffix('s')) {
            (Some(number), _) => positive(number),
            (None, Some(number)) => positive(number).map(|seconds| seconds * 1e3),
            (None, None) => None,
        };
        let milliseconds = milliseconds.filter(|time| *time <= MAX_FACTOR * 60.0).ok_or(wrong)?;
        Ok(Self { rank, milliseconds })
    }
}

impl FromStr for MoreLayers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = "write STAGE:LAYERS with 1 to 1000 layers, for example 3:2";
        let (stage, layers) = pair(text).ok_or(wrong)?;
        let layers = layers.parse().ok().filter(|layers| (1..=1000).contains(layers)).ok_or(wrong)?;
        Ok(Self { stage, layers })
    }
}

impl FromStr for Hang {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let both =
            text.split_once(':').and_then(|(step, rank)| Some((step.parse().ok()?, rank.parse().ok()?)));
        let (step, rank) = both.ok_or("write STEP:RANK, for example 25:3")?;
        Ok(Self { step, rank })
    }
}

fn pair(text: &str) -> Option<(u32, &str)> {
    let (rank, rest) = text.split_once(':')?;
    Some((rank.parse().ok()?, rest))
}

fn positive(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0)
}

/// All faults, checked against the job.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    slow: Vec<SlowGpu>,
    throttle: Vec<Throttle>,
    slow_host: Vec<SlowHost>,
    hang: Option<Hang>,
}

impl Faults {
    pub fn new(
        slow: &[SlowGpu],
        throttle: &[Throttle],
        slow_host: &[SlowHost],
        hang: Option<Hang>,
        ranks: u32,
        steps: u64,
    ) -> Result<Self, String> {
        let named = slow.iter().map(|fault| ("--slow", fault.rank));
        let named = named.chain(throttle.iter().map(|fault| ("--throttle", fault.rank)));
        let named = named.chain(slow_host.iter().map(|fault| ("--slow-host", fault.rank)));
        let mut named = named.chain(hang.iter().map(|fault| ("--hang", fault.rank)));
        if let Some((option, rank)) = named.find(|(_, rank)| *rank >= ranks) {
            return Err(format!("{option}: there is no rank {rank}; this demo has ranks 0 to {}", ranks - 1));
        }
        if let Some(hang) = hang.filter(|hang| steps > 0 && hang.step >= steps) {
            return Err(format!(
                "--hang: the demo ends before step {}; write a step from 0 to {}",
                hang.step,
                steps - 1
            ));
        }
        Ok(Self { slow: slow.to_vec(), throttle: throttle.to_vec(), slow_host: slow_host.to_vec(), hang })
    }

    /// The factor by which a rank's GPU is slower.
    pub fn slowdown(&self, rank: u32) -> Option<f64> {
        self.slow.iter().rev().find(|fault| fault.rank == rank).map(|fault| fault.factor)
    }

    /// The clock to which a rank's GPU is limited.
    pub fn throttled_mhz(&self, rank: u32) -> Option<u32> {
        self.throttle.iter().rev().find(|fault| fault.rank == rank).map(|fault| fault.megahertz)
    }

    /// The delay of a rank's loader in each step, in milliseconds.
    pub fn lost_ms(&self, rank: u32) -> Option<f64> {
        self.slow_host.iter().rev().find(|fault| fault.rank == rank).map(|fault| fault.milliseconds)
    }

    /// The step at which a rank hangs.
    pub fn hangs_at(&self, rank: u32) -> Option<u64> {
        self.hang.filter(|fault| fault.rank == rank).map(|fault| fault.step)
    }
}
