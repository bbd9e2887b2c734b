//! Arguments of commands that record a running job: its frames, the operations of some steps, or Kineto's
//! traces.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use xpu_client::{capture::window_length, filter::Filter};
use xpu_wire::frame::CaptureOrder;

use super::{
    JobArgs,
    job::ONE_JOB,
    parse::{KindList, RankList, kinds, length, ranks, sample_rate, trace_length},
};

#[derive(Debug, Args)]
#[command(mut_arg("job", |job| job.help("Name of the job [default: all jobs of the hosts]")))]
pub struct RecordArgs {
    #[command(flatten)]
    pub of: JobArgs,
    /// The file to write; it must not exist
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Stop after this time: `90s`, `10m`, `1h30m` [default: at Ctrl-C]
    #[arg(long = "for", value_name = "TIME", value_parser = length)]
    pub length: Option<Duration>,
    /// Leave out GEMMs by shape and collectives by size, which take most of the space
    #[arg(long)]
    pub no_details: bool,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("extent").required(true), mut_arg("job", |job| job.help(ONE_JOB)))]
pub struct CaptureArgs {
    #[command(flatten)]
    pub of: JobArgs,
    /// Number of steps, the same steps on every rank, 1,000 at most
    #[arg(long, value_name = "N", group = "extent", value_parser = clap::value_parser!(u32).range(1..=i64::from(CaptureOrder::STEPS)))]
    pub steps: Option<u32>,
    /// Capture a period instead of steps, at the same time on every rank: `500ms`, `2s`, ten minutes at most;
    /// for programs without steps, such as inference servers
    #[arg(long = "for", value_name = "TIME", group = "extent", value_parser = window_length)]
    pub length: Option<Duration>,
    /// Only these ranks: `0-7,16` [default: all]
    #[arg(long, value_name = "LIST", value_parser = ranks)]
    pub ranks: Option<RankList>,
    /// Only matching ranks: `rank<64 & tflops<0.9*median & host~gpu1`; `state=slow,hung`
    #[arg(long, value_name = "FILTER", conflicts_with = "ranks")]
    pub filter: Option<Filter>,
    /// The file to write; it must not exist
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Time limit for the capture, counted from the request to the ranks [default: 120 s, and the time of --for]
    #[arg(long, value_name = "SECONDS")]
    pub wait: Option<u32>,
    /// Also all GPU kernels, through CUPTI, unless the job was started with `XPU_TOP_CUPTI=0`
    #[arg(long)]
    pub kernels: bool,
    /// Leave out Python functions
    #[arg(long)]
    pub light: bool,
    /// Write only the share of each step that each function takes, with its rate, in place of single operations: some
    /// kilobytes per rank, made on its host. `report` compares the ranks
    #[arg(long, conflicts_with = "kineto")]
    pub functions_only: bool,
    /// Also sample Python's stacks, this often per second, 1000 at most [default: 500; with --native 100]
    #[arg(long, value_name = "HZ", num_args = 0..=1, require_equals = true, default_missing_value = "0", value_parser = sample_rate)]
    pub python: Option<u32>,
    /// Include native frames in these stacks; each sample stops each thread for a moment
    #[arg(long, requires = "python")]
    pub native: bool,
    /// Also trace the same steps with PyTorch's profiler (Kineto): the traces go to FILE.kineto; not
    /// with --kernels or --on-finding
    #[arg(long, conflicts_with_all = ["kernels", "on_finding"])]
    pub kineto: bool,
    /// Exit as soon as everything has arrived, without watching for slow ranks for another 13 seconds
    #[arg(long)]
    pub no_watch: bool,
    /// Also include the sampled operations of this many earlier steps, 64 at most; a rank keeps 4,096 operations
    /// [default: 0, with --on-finding 20]; not with --for
    #[arg(long, value_name = "N", conflicts_with = "length", value_parser = clap::value_parser!(u32).range(0..=64))]
    pub before: Option<u32>,
    /// Wait until there is a finding, or one of these kinds: `hang,slow_rank`; a finding that is already there counts
    #[arg(long, value_name = "KINDS", num_args = 0..=1, require_equals = true, default_missing_value = "", value_parser = kinds)]
    pub on_finding: Option<KindList>,
    /// Give up waiting for a finding after this time: `90s`, `10m`, `12h` [default: at Ctrl-C]
    #[arg(long, value_name = "TIME", value_parser = length, requires = "on_finding")]
    pub within: Option<Duration>,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("window").required(true), mut_arg("job", |job| job.help(ONE_JOB)))]
pub struct KinetoArgs {
    #[command(flatten)]
    pub of: JobArgs,
    /// Number of steps, the same steps on every rank, 1,000 at most
    #[arg(long, value_name = "N", group = "window", value_parser = clap::value_parser!(u32).range(1..=i64::from(CaptureOrder::STEPS)))]
    pub steps: Option<u32>,
    /// Duration, at the same time on every rank: `500ms`, `2s`, an hour at most
    #[arg(long, value_name = "TIME", group = "window", value_parser = trace_length)]
    pub duration: Option<Duration>,
    /// Wait at least this long before the start: `15s` [default: until every rank's profiler has polled]
    #[arg(long, value_name = "TIME", value_parser = trace_length)]
    pub start_in: Option<Duration>,
    /// Only these ranks: `0-7,16` [default: all]
    #[arg(long, value_name = "LIST", value_parser = ranks)]
    pub ranks: Option<RankList>,
    /// Only matching ranks: `rank<64 & tflops<0.9*median & host~gpu1`; `state=slow,hung`
    #[arg(long, value_name = "FILTER", conflicts_with = "ranks")]
    pub filter: Option<Filter>,
    /// Only the ranks with these process ids on their hosts
    #[arg(long, value_name = "LIST", value_delimiter = ',', conflicts_with_all = ["ranks", "filter"])]
    pub pids: Option<Vec<u32>>,
    /// Also the input shapes of operators
    #[arg(long)]
    pub record_shapes: bool,
    /// Also allocations and frees of tensors
    #[arg(long)]
    pub profile_memory: bool,
    /// Also Python functions; steps are much slower during the trace
    #[arg(long)]
    pub with_stack: bool,
    /// Also the FLOPs of operators, estimated by PyTorch
    #[arg(long)]
    pub with_flops: bool,
    /// Also the modules that operators belong to, for `TorchScript`
    #[arg(long)]
    pub with_modules: bool,
    /// The folder to write to, created if needed: one `rank-0003.json.gz` per rank, and `manifest.json`; these files must not exist
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,
    /// Time limit for the traces, counted from the request to the ranks [default: twice the time of the
    /// steps, plus two minutes]
    #[arg(long, value_name = "SECONDS")]
    pub wait: Option<u32>,
}
