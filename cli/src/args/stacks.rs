//! Arguments of commands that show where ranks are and their last calls, live or from a recording.

use std::path::PathBuf;

use clap::Args;
use xpu_client::filter::Filter;
use xpu_wire::id::Rank;

use super::{
    JobArgs,
    job::{CONNECTION, HOSTS, ONE_JOB},
    parse::rank,
};

#[derive(Debug, Args)]
#[command(mut_arg("job", |job| job.help(ONE_JOB)))]
pub struct StacksArgs {
    #[command(flatten)]
    pub of: JobArgs,
    /// Only this rank; may be given several times
    #[arg(long, value_name = "RANK", value_parser = rank)]
    pub rank: Vec<Rank>,
    /// Only matching ranks: `rank<64 & tflops<0.9*median & host~gpu1`; `state=slow,hung`
    #[arg(long, value_name = "FILTER", conflicts_with = "rank")]
    pub filter: Option<Filter>,
    /// Also native frames; each thread is stopped for a moment
    #[arg(long)]
    pub native: bool,
    /// Also the kernels on the GPUs of a hung job that was started with `xpu-top run --gpu-core`; this ends
    /// these ranks
    #[arg(long, conflicts_with = "replay")]
    pub gpus: bool,
    /// Do not ask before --gpus ends the ranks
    #[arg(long, requires = "gpus")]
    pub yes: bool,
    #[command(flatten)]
    pub form: StacksForm,
    /// Read a recording, at its end or at --at
    #[arg(long, value_name = "FILE|DIR", conflicts_with_all = HOSTS, conflicts_with_all = CONNECTION, conflicts_with_all = ["native", "wait"])]
    pub replay: Option<PathBuf>,
    /// Time in the recording: `02:14:07` (UTC), `+10m`, `-30s` (before the end), `50%`
    #[arg(long, value_name = "TIME", requires = "replay", allow_hyphen_values = true)]
    pub at: Option<String>,
    /// How long to wait for all ranks to answer [default: 15; with --gpus 70]
    #[arg(long, value_name = "SECONDS")]
    pub wait: Option<u32>,
}

/// The outputs of the stacks. Without any, the tree as text.
#[derive(Clone, Debug, Args)]
#[group(multiple = true)]
pub struct StacksForm {
    /// The tree as text [default, unless a file is written]
    #[arg(long, conflicts_with = "json")]
    pub text: bool,
    /// The tree and every rank's threads as a JSON document
    #[arg(long)]
    pub json: bool,
    /// Write folded lines, `function@file:line@here|missing;...`; `-`: to standard output
    #[arg(long, value_name = "FILE")]
    pub folded: Option<PathBuf>,
    /// Write a flame graph
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

/// Arguments of `xpu-top gpu-core`, which is `xpu-top stacks --gpus`.
#[derive(Clone, Debug, Args)]
#[command(mut_arg("job", |job| job.help(ONE_JOB)))]
pub struct GpuCoreArgs {
    #[command(flatten)]
    pub of: JobArgs,
    /// Only this rank; may be given several times
    #[arg(long, value_name = "RANK", value_parser = rank)]
    pub rank: Vec<Rank>,
    /// Only matching ranks: `rank<64 & host~gpu1`; `state=hung`
    #[arg(long, value_name = "FILTER", conflicts_with = "rank")]
    pub filter: Option<Filter>,
    /// Do not ask before the ranks are ended
    #[arg(long)]
    pub yes: bool,
    #[command(flatten)]
    pub form: StacksForm,
    /// How long to wait for all ranks to answer [default: 70]
    #[arg(long, value_name = "SECONDS")]
    pub wait: Option<u32>,
}

impl From<&GpuCoreArgs> for StacksArgs {
    fn from(args: &GpuCoreArgs) -> Self {
        let GpuCoreArgs { of, rank, filter, yes, form, wait } = args.clone();
        Self { of, rank, filter, native: false, gpus: true, yes, form, replay: None, at: None, wait }
    }
}

#[derive(Debug, Args)]
#[command(mut_arg("job", |job| job.help(ONE_JOB)))]
pub struct CollectivesArgs {
    #[command(flatten)]
    pub of: JobArgs,
    /// Only this rank; may be given several times
    #[arg(long, value_name = "RANK", value_parser = rank)]
    pub rank: Vec<Rank>,
    /// Number of calls per rank [default: those around the divergence; all with --json]
    #[arg(long, value_name = "N")]
    pub last: Option<usize>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Write one file per rank for PyTorch's flight recorder analyser: `torchfrtrace DIR --prefix nccl_trace_rank_`
    #[arg(long, value_name = "DIR")]
    pub flight_recorder: Option<PathBuf>,
    /// Read a recording, at its end or at --at
    #[arg(long, value_name = "FILE|DIR", conflicts_with_all = HOSTS, conflicts_with_all = CONNECTION, conflicts_with = "wait")]
    pub replay: Option<PathBuf>,
    /// Time in the recording: `02:14:07` (UTC), `+10m`, `-30s` (before the end), `50%`
    #[arg(long, value_name = "TIME", requires = "replay", allow_hyphen_values = true)]
    pub at: Option<String>,
    /// How long to wait for all ranks to answer
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    pub wait: u32,
}

#[derive(Debug, Args)]
#[command(mut_arg("job", |job| job.help(ONE_JOB)))]
pub struct RasArgs {
    #[command(flatten)]
    pub of: JobArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Read a recording, at its end or at --at
    #[arg(long, value_name = "FILE|DIR", conflicts_with_all = HOSTS, conflicts_with_all = CONNECTION, conflicts_with = "wait")]
    pub replay: Option<PathBuf>,
    /// Time in the recording: `02:14:07` (UTC), `+10m`, `-30s` (before the end), `50%`
    #[arg(long, value_name = "TIME", requires = "replay", allow_hyphen_values = true)]
    pub at: Option<String>,
    /// How long to wait for the answer
    #[arg(long, value_name = "SECONDS", default_value_t = 40)]
    pub wait: u32,
}
