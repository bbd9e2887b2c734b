//! The baseline of a finished run, kept in a file for comparison with later runs.

mod measure;
mod runs;

use std::{ffi::OsString, path::PathBuf};

use serde::{Deserialize, Serialize};

pub use measure::Measure;
pub(crate) use measure::work;
pub use runs::Runs;

use xpu_wire::{
    id::{HostName, JobName, Rank},
    unit::Moment,
};

use crate::job::median;

/// The baseline of the ranks of one run, or of those on one host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    pub job: JobName,
    pub world_size: u32,
    /// When the first of its ranks started, in nanoseconds since 1970.
    pub began: Moment,
    pub gpu: Gpu,
    /// In order.
    pub ranks: Vec<Normal>,
}

/// The model of its GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gpu {
    /// CUDA's name of it; empty if unknown.
    pub name: String,
    /// Distinguishes models when only the driver's library is available.
    pub sm_clock_max: Option<u32>,
    pub memory_total: Option<u64>,
}

impl Gpu {
    /// Whether both are of one model, as far as known.
    pub fn is_like(&self, other: &Self) -> bool {
        fn alike<T: PartialEq>(one: Option<T>, other: Option<T>) -> bool {
            one.zip(other).is_none_or(|(one, other)| one == other)
        }
        let name = |gpu: &Self| Some(gpu.name.clone()).filter(|name| !name.is_empty());
        alike(name(self), name(other))
            && alike(self.sm_clock_max, other.sm_clock_max)
            && alike(self.memory_total, other.memory_total)
    }
}

/// The baseline of one rank, in its steady state: medians over half minutes. Unknown figures are `null`,
/// never zero.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Normal {
    pub rank: Rank,
    pub host: HostName,
    /// Length of the measurement, in seconds.
    pub measured_s: f64,
    /// Time per step, and its spread between half minutes.
    pub step_ms_mean: Option<f64>,
    pub step_ms_spread: Option<f64>,
    /// Median and 99th percentile of single steps.
    pub step_ms_p50: Option<f64>,
    pub step_ms_p99: Option<f64>,
    /// FLOPs of a step's GEMMs.
    pub step_tflop: Option<f64>,
    pub gemm_tflops: Option<f64>,
    /// Known if all ranks of a communicator are on one host.
    pub bus_gb_s: Option<f64>,
    /// Share of the time in which the others waited for this rank alone, in percent; known under the same
    /// condition.
    pub cost_pct: Option<f64>,
}

/// The folder of runs: `~/.local/state/xpu-top/runs`, by these variables.
pub fn folder(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = variable("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || Some(PathBuf::from(variable("HOME")?).join(".local/state"));
    set.or_else(home).map(|path| path.join("xpu-top/runs"))
}

impl Baseline {
    pub fn rank(&self, rank: Rank) -> Option<&Normal> {
        self.ranks.iter().find(|normal| normal.rank == rank)
    }

    /// The median over ranks.
    pub fn median(&self, of: impl Fn(&Normal) -> Option<f64>) -> Option<f64> {
        median(self.ranks.iter().filter_map(of).collect())
    }

    /// `Fri 20 Nov`, in UTC.
    pub fn day(&self) -> String {
        const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
        const MONTHS: [&str; 12] =
            ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        let days = self.began.0 / 86_400_000_000_000;
        let (mut year, mut of_year) = (1970, days);
        let is_leap =
            |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
        while of_year >= 365 + u64::from(is_leap(year)) {
            of_year -= 365 + u64::from(is_leap(year));
            year += 1;
        }
        let february = 28 + u64::from(is_leap(year));
        let mut month = 0;
        for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
            if of_year < length {
                break;
            }
            of_year -= length;
            month += 1;
        }
        format!("{} {} {}", WEEKDAYS[(days % 7) as usize], of_year + 1, MONTHS[month.min(11)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn run(began: u64, host: &str, ranks: std::ops::Range<u32>) -> Baseline {
        let normal = |rank| Normal { rank: Rank(rank), host: host.into(), ..Normal::default() };
        Baseline {
            job: "llama".into(),
            world_size: 4,
            began: Moment(began * 1_000_000_000),
            gpu: Gpu::default(),
            ranks: ranks.map(normal).collect(),
        }
    }

    #[test]
    fn a_day_is_formatted_as_a_date() {
        for (second, day) in [
            (0, "Thu 1 Jan"),
            (951_782_400, "Tue 29 Feb"),
            (1_763_596_800, "Thu 20 Nov"),
            (1_795_132_800, "Fri 20 Nov"),
            (4_102_444_799, "Thu 31 Dec"),
        ] {
            assert_eq!(run(second, "a", 0..1).day(), day);
        }
    }

    #[test]
    fn gpus_are_alike_until_something_distinguishes_them() {
        let (unknown, one) = (Gpu::default(), Gpu { name: "H100".to_owned(), ..Gpu::default() });
        let other = Gpu { name: "H200".to_owned(), ..Gpu::default() };
        let slower = Gpu { sm_clock_max: Some(1500), ..Gpu::default() };
        let faster = Gpu { sm_clock_max: Some(1980), ..one.clone() };
        assert!(unknown.is_like(&one) && one.is_like(&slower));
        assert!(!one.is_like(&other) && !faster.is_like(&slower));
    }
}
