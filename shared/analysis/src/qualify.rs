//! The measurements of a qualification (on each GPU, between GPUs and between hosts), and its conclusions.
//!
//! One document contains all of it. Several documents can be merged, and are then judged again, with more
//! neighbours.

mod judge;
mod limits;

use serde::{Deserialize, Serialize};

/// From good to bad.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    #[default]
    Pass,
    /// Nothing is known, which is not a pass.
    NotRun,
    Fail,
}

impl Verdict {
    /// The exit code of `xpu-top qualify`.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Pass => 0,
            Self::Fail => 1,
            Self::NotRun => 2,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Gemm,
    /// Copies within the GPU's memory: bytes read and bytes written.
    Memory,
    /// Copies from pinned host memory to one GPU alone.
    ToGpu,
    FromGpu,
    /// Same as [`Self::ToGpu`], on all GPUs of the host at the same time, limited by the host's switches and
    /// memory. Not judged.
    ToGpuTogether,
    /// Copies from one GPU's memory to another's.
    Peer,
    /// Bus bandwidth, as nccl-tests computes it.
    AllReduce,
}

impl Kind {
    pub fn unit(self) -> &'static str {
        if self == Self::Gemm { "TFLOPS" } else { "GB/s" }
    }
}

/// One measured rate, in the unit of its kind, and the references with which it is compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    pub kind: Kind,
    /// Distinguishes it from others of its kind: `bf16 8192`.
    pub name: String,
    pub median: f64,
    /// The 10th and the 90th percentile of the repeats.
    pub low: f64,
    pub high: f64,
    pub repeats: u32,
    /// The peak, from the data sheet, from the memory's clock and width, or from the link's generation and
    /// width.
    pub peak: Option<f64>,
    /// The median of this GPU's earlier runs that passed.
    pub past: Option<f64>,
    /// The median of the same rate on other GPUs of the model in this run.
    pub neighbours: Option<f64>,
    pub of_peak: Option<f64>,
    pub of_past: Option<f64>,
    pub of_neighbours: Option<f64>,
    pub verdict: Verdict,
}

impl Figure {
    /// Median of the repeats' rates; `None` without repeats.
    pub fn of(kind: Kind, name: impl Into<String>, mut rates: Vec<f64>) -> Option<Self> {
        rates.retain(|rate| rate.is_finite());
        rates.sort_by(f64::total_cmp);
        let last = rates.len().checked_sub(1)?;
        let at = |share: f64| rates[(last as f64 * share).round() as usize];
        Some(Self {
            kind,
            name: name.into(),
            low: at(0.1),
            high: at(0.9),
            repeats: rates.len() as u32,
            median: xpu_model::job::median(rates)?,
            peak: None,
            past: None,
            neighbours: None,
            of_peak: None,
            of_past: None,
            of_neighbours: None,
            verdict: Verdict::Pass,
        })
    }

    pub fn with_peak(self, peak: Option<f64>) -> Self {
        Self { peak, ..self }
    }

    /// `gemm bf16 8192`
    pub fn title(&self) -> String {
        let kind = match self.kind {
            Kind::Gemm => "gemm",
            Kind::Memory => "memory",
            Kind::ToGpu => "host to GPU",
            Kind::FromGpu => "GPU to host",
            Kind::ToGpuTogether => "host to GPU, all at once",
            Kind::Peer => "GPU to GPU",
            Kind::AllReduce => "all-reduce",
        };
        if self.name.is_empty() { kind.to_owned() } else { format!("{kind} {}", self.name) }
    }
}

/// NVML's readings while the GEMMs run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Condition {
    /// The highest temperature seen.
    pub temperature_c: Option<u32>,
    /// The median clock, and the GPU's maximum clock.
    pub sm_clock_mhz: Option<u32>,
    pub sm_clock_max_mhz: Option<u32>,
    /// The highest power seen, and the limit.
    pub power_w: Option<f64>,
    pub power_limit_w: Option<f64>,
    /// Why the clocks were held down: `power cap`, `hardware thermal`.
    pub throttled_by: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Gpu {
    /// CUDA's number of the GPU on its host.
    pub index: u32,
    pub uuid: Option<String>,
    /// The model, as CUDA gives it.
    pub name: Option<String>,
    pub pci: Option<String>,
    pub condition: Condition,
    pub figures: Vec<Figure>,
    /// What could not be measured, and why. This is no reason to fail.
    pub not_measured: Vec<String>,
    /// What went wrong: a call failed, or did not return.
    pub errors: Vec<String>,
    pub verdict: Verdict,
    /// Why it fails.
    pub why: Vec<String>,
    /// The measurement in progress.
    #[serde(skip)]
    pub doing: Option<String>,
}

/// Two GPUs of a host; copies go from the first to the second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    pub from: u32,
    pub to: u32,
    /// Whether the first can access the second's memory; otherwise, copies go through the host.
    pub access: bool,
    /// The driver's rank of this link among those of the host; pairs of one rank have the same kind of link.
    pub link: Option<i32>,
    pub figure: Figure,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    pub host: String,
    /// Whether another job ran: then the figures show only the remaining capacity, and are not kept.
    pub beside_job: bool,
    pub seconds: f64,
    pub gpus: Vec<Gpu>,
    pub pairs: Vec<Pair>,
    /// The all-reduce over all GPUs of the host.
    pub all_reduce: Option<Figure>,
    pub not_measured: Vec<String>,
    pub errors: Vec<String>,
    /// Why nothing was measured.
    pub not_run: Option<String>,
    pub verdict: Verdict,
    pub why: Vec<String>,
    #[serde(skip)]
    pub doing: Option<String>,
}

/// The measurement over all GPUs of two hosts, by NCCL.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostPair {
    pub hosts: [String; 2],
    pub figure: Option<Figure>,
    pub error: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Qualification {
    pub verdict: Verdict,
    /// The version that measured.
    pub version: String,
    /// Whether the measurements were the short ones, which are comparable only with each other.
    pub quick: bool,
    pub hosts: Vec<Host>,
    pub host_pairs: Vec<HostPair>,
    /// The all-reduce over all GPUs of all hosts.
    pub all_reduce: Option<Figure>,
    /// What went wrong between the hosts.
    pub errors: Vec<String>,
}

impl Qualification {
    /// Compares everything, and concludes.
    pub fn judge(&mut self) {
        judge::judge(self);
    }

    /// Merges the hosts of several documents; a host's last occurrence counts.
    pub fn merged(all: Vec<Self>) -> Self {
        let mut merged = Self::default();
        for one in all {
            merged.version = one.version;
            merged.quick |= one.quick;
            for host in one.hosts {
                merged.hosts.retain(|known| known.host != host.host);
                merged.hosts.push(host);
            }
            merged.host_pairs.extend(one.host_pairs);
            merged.errors.extend(one.errors);
        }
        merged
    }
}
