//! Arguments of commands on existing captures.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use xpu_analysis::capture::{CostKind, Groups, Kind, Only};
use xpu_wire::frame::CaptureOrder;

use super::{
    JobArgs, PricedArgs,
    job::{CONNECTION, HOSTS, ONE_JOB},
    parse::length,
};

/// Selects ranks by their positions in the parallel groups.
#[derive(Clone, Debug, Default, Args)]
pub struct SelectArgs {
    /// Parallel groups of the ranks, fastest axis first, as Megatron numbers them: `tp4-cp2-dp4-pp2`
    #[arg(long, value_name = "AXES")]
    pub groups: Option<Groups>,
    /// Only ranks at these positions: `tp=0,pp=1`
    #[arg(long, value_name = "PLACES", requires = "groups")]
    pub only: Option<Only>,
}

#[derive(Debug, Args)]
pub struct ReportArgs {
    /// A file that `xpu-top capture` wrote
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Write a self-contained HTML page with plots; `-`: to standard output
    #[arg(long, value_name = "OUT")]
    pub html: Option<PathBuf>,
    /// Number of rows per table
    #[arg(long, value_name = "N", default_value_t = 12)]
    pub top: usize,
    #[command(flatten)]
    pub select: SelectArgs,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("timeline").multiple(true))]
pub struct ExportArgs {
    /// A file that `xpu-top capture` wrote; with --flight-recorder a recording, or an incident folder
    #[arg(value_name = "FILE|DIR")]
    pub file: PathBuf,
    /// Write a Perfetto trace, for <https://ui.perfetto.dev>
    #[arg(long, value_name = "OUT", group = "timeline")]
    pub perfetto: Option<PathBuf>,
    /// Folder with traces of the same steps by PyTorch's profiler, for --perfetto and --chrome [default:
    /// FILE.kineto, if it exists]
    #[arg(long, value_name = "DIR", requires = "timeline")]
    pub traces: Option<PathBuf>,
    /// Write Chrome's JSON, compressed if the name ends in .gz
    #[arg(long, value_name = "OUT", group = "timeline")]
    pub chrome: Option<PathBuf>,
    /// Write traces as PyTorch's profiler (Kineto) does, for Holistic Trace Analysis, `TensorBoard` and Perfetto: one file per
    /// rank in DIR, or FILE (`.json`, `.json.gz`) of one rank
    #[arg(long, value_name = "DIR|FILE")]
    pub kineto: Option<PathBuf>,
    /// Write one table per kind of operation: DIR/gemms.csv and so on
    #[arg(long, value_name = "DIR")]
    pub csv: Option<PathBuf>,
    /// Write the same tables as Parquet: DIR/gemms.parquet and so on
    #[arg(long, value_name = "DIR")]
    pub parquet: Option<PathBuf>,
    /// Write folded lines, for flame graphs: `rank 0;step 41;gemm;gemm 8192x8192x4096 microseconds`
    #[arg(long, value_name = "OUT")]
    pub folded: Option<PathBuf>,
    /// Write a flame graph of all ranks' Python stacks, sampled by `capture --python`
    #[arg(long, value_name = "SVG")]
    pub flame: Option<PathBuf>,
    /// Write the last NCCL calls at the end of a recording, one file per rank, for PyTorch's flight recorder analyser:
    /// `torchfrtrace DIR --prefix nccl_trace_rank_`
    #[arg(long, value_name = "DIR", conflicts_with_all = ["perfetto", "traces", "chrome", "kineto", "csv", "parquet", "folded", "flame", "kind", "groups"])]
    pub flight_recorder: Option<PathBuf>,
    /// Only these kinds of operations; steps are always included
    #[arg(long, value_name = "KINDS", value_enum, value_delimiter = ',')]
    pub kind: Vec<ExportKind>,
    #[command(flatten)]
    pub select: SelectArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportKind {
    /// GEMMs
    Gemm,
    /// NCCL operations, including point to point and groups
    Collective,
    /// Kernels (by name and from CUPTI) and graphs
    Kernel,
    /// Copies and fills
    Copy,
    /// Waiting calls and Python functions
    Host,
}

impl ExportKind {
    pub fn takes(self, kind: Kind) -> bool {
        self == match kind {
            Kind::Gemm => Self::Gemm,
            Kind::Collective | Kind::PointToPoint | Kind::Group => Self::Collective,
            Kind::Graph | Kind::Kernel | Kind::ActivityKernel => Self::Kernel,
            Kind::Copy | Kind::Set => Self::Copy,
            Kind::Blocked | Kind::Function => Self::Host,
        }
    }
}

#[derive(Debug, Args)]
pub struct DiffArgs {
    /// The earlier capture
    #[arg(value_name = "BEFORE")]
    pub before: PathBuf,
    /// The later capture
    #[arg(value_name = "AFTER")]
    pub after: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Number of rows of text
    #[arg(long, value_name = "N", default_value_t = 24)]
    pub top: usize,
    /// Exit with 1 if steps take this much longer: `3%`, or a part of them does: `exposed=10%`; parts are step, compute, exposed, memory and gap
    #[arg(long, value_name = "[PART=]PERCENT", value_parser = limit)]
    pub fail_on: Vec<Limit>,
    #[command(flatten)]
    pub select: SelectArgs,
}

#[derive(Debug, Args)]
#[command(mut_arg("job", |job| job.help(ONE_JOB)))]
pub struct WhatIfArgs {
    /// A capture by `xpu-top capture`, of a job whose ranks all make the same calls (DDP, FSDP, tensor parallelism); or
    /// a Parquet trace of operations by stage and data-parallel rank
    #[arg(value_name = "FILE", required_unless_present = "live", conflicts_with_all = HOSTS, conflicts_with_all = CONNECTION, conflicts_with_all = ["live", "job", "config", "gpu_hour_price"])]
    pub file: Option<PathBuf>,
    /// Print JSON; with --live one line per capture
    #[arg(long)]
    pub json: bool,
    /// Number of rows per table
    #[arg(long, value_name = "N", default_value_t = 12, conflicts_with = "live")]
    pub top: usize,
    /// Capture a few steps of a running job repeatedly, and sum up what its stragglers cost
    #[arg(long)]
    pub live: bool,
    #[command(flatten)]
    pub of: JobArgs,
    /// With --live: time from one capture to the next: `5m`, `1h`
    #[arg(long, value_name = "TIME", requires = "live", default_value = "5m", value_parser = length)]
    pub every: Duration,
    /// With --live: steps of a capture
    #[arg(long, value_name = "N", requires = "live", default_value_t = 5, value_parser = clap::value_parser!(u32).range(2..=i64::from(CaptureOrder::STEPS)))]
    pub steps: u32,
    /// With --live: end after this many captures [default: when the job has ended, or at Ctrl-C]
    #[arg(long, value_name = "N", requires = "live", value_parser = clap::value_parser!(u32).range(1..))]
    pub times: Option<u32>,
    #[command(flatten)]
    pub priced: PricedArgs,
}

#[derive(Debug, Args)]
pub struct GemmReplayArgs {
    /// A file that `xpu-top capture` wrote
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Replay this many shapes, those that took the most time in the job
    #[arg(long, value_name = "N", default_value_t = 24)]
    pub top: usize,
    /// CUDA's number of the GPU on this machine
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub device: u32,
    /// Repetitions of each shape [default: a fifth of a second, 5 to 500 times]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub iterations: Option<u32>,
    /// Allow a GPU that is in use: both jobs slow down
    #[arg(long)]
    pub shared: bool,
    #[command(flatten)]
    pub select: SelectArgs,
}

/// The limit on an increase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    pub part: CostKind,
    /// 0.03 is 3 %.
    pub most: f64,
}

fn limit(text: &str) -> Result<Limit, String> {
    let (part, most) = text.split_once('=').unwrap_or(("step", text));
    let part = match part {
        "step" => CostKind::Step,
        "compute" => CostKind::Compute,
        "exposed" => CostKind::Exposed,
        "memory" => CostKind::Memory,
        "gap" => CostKind::Gap,
        _ => return Err("parts are step, compute, exposed, memory and gap".to_owned()),
    };
    let most = most.strip_suffix('%').unwrap_or(most).trim().parse::<f64>().ok();
    let most = most.filter(|most| most.is_finite() && *most >= 0.0).map(|percent| percent / 100.0);
    most.map(|most| Limit { part, most }).ok_or_else(|| "write percent, like 3% or exposed=10%".to_owned())
}
