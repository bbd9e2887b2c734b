//! The command line.

mod captures;
mod job;
mod looking;
mod past;

use std::{ffi::OsString, path::PathBuf, time::Duration};

pub use captures::{
    DiffArgs, ExportArgs, ExportKind, GemmReplayArgs, Limit, ReportArgs, SelectArgs, WhatIfArgs,
};
use clap::{Args, Parser, Subcommand, ValueEnum};
pub use job::quoted;
pub use job::{JobArgs, WayArgs};
pub use looking::LookArgs;
pub use past::PastRun;
use xpu_analysis::capture::Groups;
use xpu_client::{capture::window_length, filter::Filter, time};
use xpu_model::finding::{Kind, PRICE, Price};
use xpu_net::key::KeyError;
use xpu_tui::config::{Config, ConfigError};
use xpu_wire::{
    endpoint::BasePort,
    frame::{CaptureOrder, SampleOrder},
    id::{JobName, Rank},
};

use crate::command::demo::DemoArgs;

/// htop for distributed GPU training.
///
/// Start the workers under `xpu-top run`, then watch them from anywhere with `xpu-top --job-hosts FILE`.
#[derive(Debug, Parser)]
#[command(name = "xpu-top", version = xpu_wire::build(), args_conflicts_with_subcommands = true)]
pub struct CommandLine {
    #[command(flatten)]
    pub watch: JobArgs,
    #[command(flatten)]
    pub look: LookArgs,
    /// Show a recording instead of a running job
    #[arg(long, value_name = "FILE|DIR", conflicts_with_all = ["job_hosts", "hosts", "slurm_job", "k8s_service"])]
    pub replay: Option<PathBuf>,
    /// Start at this time: `02:14:07` (UTC), `+10m`, `-30s` (before the end), `50%`
    #[arg(long, value_name = "TIME", requires = "replay", allow_hyphen_values = true)]
    pub at: Option<String>,
    /// Compare with an earlier run: `last` of this job, or a file from ~/.local/state/xpu-top/runs
    #[arg(long, value_name = "FILE|last")]
    pub baseline: Option<PastRun>,
    /// Only matching ranks: `rank<64 & tflops<0.9*median & host~gpu1`; `state=slow,hung`
    #[arg(long, value_name = "FILTER")]
    pub filter: Option<Filter>,
    /// Layout of the ranks, fastest axis first, as Megatron numbers them: `tp4-cp2-dp4-pp2`; F folds by these groups
    #[arg(long, value_name = "AXES")]
    pub groups: Option<Groups>,
    /// Do not capture the mouse
    #[arg(long)]
    pub no_mouse: bool,
    /// Read the settings from this file [default: `XPU_TOP_CONFIG`, else ~/.config/xpu-top/config.toml if there is one]
    #[arg(long, value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,
    /// Price of a GPU-hour, `2.5` or `2.5 EUR`: lost GPU-hours are also reported in money [default: `XPU_TOP_GPU_HOUR_PRICE`, else from the settings]
    #[arg(long, value_name = "PRICE", global = true)]
    pub gpu_hour_price: Option<Price>,
    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a program and watch it: `xpu-top run -- torchrun train.py`
    Run(RunArgs),
    /// Print the status of a job, and exit
    Status(StatusArgs),
    /// Record what all ranks report to a file, for --replay
    Record(RecordArgs),
    /// Capture every operation of a few steps on all ranks to a file
    Capture(CaptureArgs),
    /// Trace the same steps on all ranks with PyTorch's profiler (Kineto), and fetch the traces
    Kineto(KinetoArgs),
    /// Summarize a capture: steps, operations, where the time went
    Report(ReportArgs),
    /// Compare two captures: what costs more, and whether it exceeds noise
    Diff(DiffArgs),
    /// Simulate the steps of a capture or trace without their stragglers: which rank or stage costs what
    WhatIf(WhatIfArgs),
    /// Convert a capture to a Perfetto or Chrome timeline, tables or folded stacks
    Export(ExportArgs),
    /// Rerun the GEMMs of a capture one by one on a GPU of this machine, and compare their speed with the job's
    GemmReplay(GemmReplayArgs),
    /// Try it without a GPU: run a simulated job on this machine
    Demo(DemoArgs),
    /// Show where every rank of a job is: the stacks of all threads, merged
    Stacks(StacksArgs),
    /// Show the last NCCL calls of every rank in order, and where the ranks diverge; works for a job that hangs or has ended
    Collectives(CollectivesArgs),
    /// Ask NCCL's RAS service about a job, and compare its counts with those of xpu-top
    Ras(RasArgs),
    /// Serve the web page of a job on many hosts from this host
    Serve(ServeArgs),
    /// Switch the hooks of a running job off, and on again
    Ctl(CtlArgs),
    /// Check the setup of this machine, and say how to fix each problem
    Doctor(DoctorArgs),
    /// Show which settings are read and check them, or print all settings
    Config(ConfigArgs),
    /// Create the key that lets only you watch from another host
    Keygen(KeygenArgs),
}

#[derive(Debug, Args)]
pub struct RunArgs {
    /// Name of the job [default: `XPU_TOP_JOB`, else the Slurm job, else the script's name]
    #[arg(long, value_name = "NAME", value_parser = job)]
    pub job: Option<JobName>,
    #[command(flatten)]
    pub way: WayArgs,
    /// Do not start a collector
    #[arg(long)]
    pub no_collector: bool,
    /// Leave `KINETO_USE_DAEMON` and `KINETO_CONFIG` as they are: then `xpu-top kineto` cannot start a profiler
    #[arg(long)]
    pub no_kineto: bool,
    /// Prepare core dumps of GPUs on request: `xpu-top stacks --gpus` can then name the kernels of a job that hangs
    #[arg(long)]
    pub gpu_core: bool,
    /// As --gpu-core; and half a minute after a hang is kept on disk, name the kernels on all GPUs unasked. This ends the ranks
    #[arg(long, conflicts_with = "gpu_core")]
    pub gpu_core_on_hang: bool,
    /// As --gpu-core; and at an exception of a GPU (illegal address, assertion), CUDA's driver ends the process with SIGABRT, in
    /// place of an error, and the report of the rank names the kernel
    #[arg(long)]
    pub gpu_core_on_exception: bool,
    /// Command line to run once per hang or failed rank, through `sh -c` on one host, for a minute at most; the status or the exit
    /// report is on its standard input as JSON [default: `XPU_TOP_ON_HANG`]
    #[arg(long, value_name = "CMD")]
    pub on_hang: Option<String>,
    /// Command to start
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    pub of: JobArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Add this rank's GEMMs and collectives by shape
    #[arg(long, value_name = "RANK", value_parser = rank)]
    pub rank: Option<u32>,
    /// Compare with an earlier run: `last` of this job, or a file from ~/.local/state/xpu-top/runs
    #[arg(long, value_name = "FILE|last")]
    pub baseline: Option<PastRun>,
    /// Only matching ranks: `rank<64 & tflops<0.9*median & host~gpu1`; `state=slow,hung`
    #[arg(long, value_name = "FILTER", conflicts_with = "rank")]
    pub filter: Option<Filter>,
    /// Skip the seconds of watching that finding slow ranks needs; dead ranks and hangs are still reported
    #[arg(long)]
    pub now: bool,
    /// Read a recording, at its end or at --at
    #[arg(long, value_name = "FILE|DIR", conflicts_with_all = ["job_hosts", "hosts", "wait"])]
    pub replay: Option<PathBuf>,
    /// `02:14:07` (UTC), `+10m`, `-30s` (before the end), `50%`
    #[arg(long, value_name = "TIME", requires = "replay", allow_hyphen_values = true)]
    pub at: Option<String>,
    /// How long to wait for all hosts to answer and for a job
    #[arg(long, value_name = "SECONDS")]
    pub wait: Option<u32>,
}

#[derive(Debug, Args)]
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
#[command(group = clap::ArgGroup::new("extent").required(true))]
pub struct CaptureArgs {
    #[command(flatten)]
    pub of: JobArgs,
    /// Number of steps, the same steps on every rank
    #[arg(long, value_name = "N", group = "extent", value_parser = clap::value_parser!(u32).range(1..=i64::from(CaptureOrder::STEPS)))]
    pub steps: Option<u32>,
    /// A time in place of steps, the same on every rank: `500ms`, `2s`, `1m`; for programs without steps, such as inference servers
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
    /// Time limit for the whole command [default: 120 s, and the time of --for]
    #[arg(long, value_name = "SECONDS")]
    pub wait: Option<u32>,
    /// Also all GPU kernels, through CUPTI, unless the job was started with `XPU_TOP_CUPTI=0`
    #[arg(long)]
    pub kernels: bool,
    /// No Python functions
    #[arg(long)]
    pub light: bool,
    /// Also sample Python's stacks, this often per second, 1000 at most [default: 500; with --native 100]
    #[arg(long, value_name = "HZ", num_args = 0..=1, require_equals = true, default_missing_value = "0", value_parser = sample_rate)]
    pub python: Option<u32>,
    /// With native frames in these stacks: each thread is stopped for a moment each time
    #[arg(long, requires = "python")]
    pub native: bool,
    /// Also trace the same steps with PyTorch's profiler (Kineto): the traces go to FILE.kineto
    #[arg(long, conflicts_with_all = ["kernels", "on_finding"])]
    pub kineto: bool,
    /// Exit as soon as everything has arrived, without watching some 13 seconds longer for slow ranks
    #[arg(long)]
    pub no_watch: bool,
    /// Also the samples of this many steps before: 64 at most; a rank keeps 4,096 operations
    /// [default: 0, with --on-finding 20]
    #[arg(long, value_name = "N", conflicts_with = "length", value_parser = clap::value_parser!(u32).range(0..=64))]
    pub before: Option<u32>,
    /// Wait for a finding: any, or one of these: `hang,slow_rank`
    #[arg(long, value_name = "KINDS", num_args = 0..=1, require_equals = true, default_missing_value = "", value_parser = kinds)]
    pub on_finding: Option<KindList>,
    /// Give up waiting for a finding after this time: `90s`, `10m`, `12h` [default: at Ctrl-C]
    #[arg(long, value_name = "TIME", value_parser = length, requires = "on_finding")]
    pub within: Option<Duration>,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("window").required(true))]
pub struct KinetoArgs {
    #[command(flatten)]
    pub of: JobArgs,
    /// Number of steps, the same steps on every rank
    #[arg(long, value_name = "N", group = "window", value_parser = clap::value_parser!(u32).range(1..=i64::from(CaptureOrder::STEPS)))]
    pub steps: Option<u32>,
    /// Duration, at the same time on every rank: `500ms`, `2s`
    #[arg(long, value_name = "TIME", group = "window", value_parser = trace_length)]
    pub duration: Option<Duration>,
    /// Start no sooner than after this time: `15s` [default: as soon as every rank has had time to ask]
    #[arg(long, value_name = "TIME", value_parser = trace_length)]
    pub start_in: Option<Duration>,
    /// Only these ranks: `0-7,16` [default: all]
    #[arg(long, value_name = "LIST", value_parser = ranks)]
    pub ranks: Option<RankList>,
    /// Only matching ranks: `rank<64 & tflops<0.9*median & host~gpu1`; `state=slow,hung`
    #[arg(long, value_name = "FILTER", conflicts_with = "ranks")]
    pub filter: Option<Filter>,
    /// Only the ranks of these processes, as their hosts number them
    #[arg(long, value_name = "LIST", value_delimiter = ',', conflicts_with_all = ["ranks", "filter"])]
    pub pids: Option<Vec<u32>>,
    /// Also the input shapes of operators
    #[arg(long)]
    pub record_shapes: bool,
    /// Also allocations and frees of tensors
    #[arg(long)]
    pub profile_memory: bool,
    /// Also Python functions; steps are much slower meanwhile
    #[arg(long)]
    pub with_stack: bool,
    /// Also the FLOPs of operators, estimated by PyTorch
    #[arg(long)]
    pub with_flops: bool,
    /// Also the modules of operators, in scripted models
    #[arg(long)]
    pub with_modules: bool,
    /// The folder to write to, created if needed: one `rank-0003.json.gz` per rank, and `manifest.json`; these files must not exist
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,
    /// Time limit for the whole command [default: the time of the steps plus two minutes]
    #[arg(long, value_name = "SECONDS")]
    pub wait: Option<u32>,
}

/// Ranks named one by one or as ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankList(pub Vec<Rank>);

/// Kinds of findings; any of them if there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindList(pub Vec<Kind>);

#[derive(Debug, Args)]
pub struct CtlArgs {
    #[command(flatten)]
    pub of: JobArgs,
    /// `off`: the hooks of all ranks pass calls through unobserved; `on`: they observe again
    #[arg(long, value_name = "on|off")]
    pub hook: OnOff,
    /// How long to wait for all ranks to switch
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub wait: u32,
}

#[derive(Debug, Args)]
pub struct StacksArgs {
    #[command(flatten)]
    pub of: JobArgs,
    /// Only this rank; may be given several times
    #[arg(long, value_name = "RANK", value_parser = rank)]
    pub rank: Vec<u32>,
    /// Only matching ranks: `rank<64 & tflops<0.9*median & host~gpu1`; `state=slow,hung`
    #[arg(long, value_name = "FILTER", conflicts_with = "rank")]
    pub filter: Option<Filter>,
    /// Also native frames; each thread is stopped for a moment
    #[arg(long)]
    pub native: bool,
    /// Also the kernels on the GPUs, of a job that hangs and was started with `xpu-top run --gpu-core`. Ends the ranks that it reads
    #[arg(long, conflicts_with = "replay")]
    pub gpus: bool,
    /// Do not ask before --gpus ends the ranks
    #[arg(long, requires = "gpus")]
    pub yes: bool,
    #[command(flatten)]
    pub form: StacksForm,
    /// Read a recording, at its end or at --at
    #[arg(long, value_name = "FILE|DIR", conflicts_with_all = ["job_hosts", "hosts", "slurm_job", "k8s_service"])]
    pub replay: Option<PathBuf>,
    /// `02:14:07` (UTC), `+10m`, `-30s` (before the end), `50%`
    #[arg(long, value_name = "TIME", requires = "replay", allow_hyphen_values = true)]
    pub at: Option<String>,
    /// How long to wait for all ranks to answer [default: 15; with --gpus 70]
    #[arg(long, value_name = "SECONDS")]
    pub wait: Option<u32>,
}

#[derive(Debug, Args)]
pub struct CollectivesArgs {
    #[command(flatten)]
    pub of: JobArgs,
    /// Only this rank; may be given several times
    #[arg(long, value_name = "RANK", value_parser = rank)]
    pub rank: Vec<u32>,
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
    #[arg(long, value_name = "FILE|DIR", conflicts_with_all = ["job_hosts", "hosts", "slurm_job", "k8s_service"])]
    pub replay: Option<PathBuf>,
    /// `02:14:07` (UTC), `+10m`, `-30s` (before the end), `50%`
    #[arg(long, value_name = "TIME", requires = "replay", allow_hyphen_values = true)]
    pub at: Option<String>,
    /// How long to wait for all ranks to answer
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    pub wait: u32,
}

#[derive(Debug, Args)]
pub struct RasArgs {
    #[command(flatten)]
    pub of: JobArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Read a recording, at its end or at --at
    #[arg(long, value_name = "FILE|DIR", conflicts_with_all = ["job_hosts", "hosts", "slurm_job", "k8s_service"])]
    pub replay: Option<PathBuf>,
    /// `02:14:07` (UTC), `+10m`, `-30s` (before the end), `50%`
    #[arg(long, value_name = "TIME", requires = "replay", allow_hyphen_values = true)]
    pub at: Option<String>,
    /// How long to wait for the answer
    #[arg(long, value_name = "SECONDS", default_value_t = 40)]
    pub wait: u32,
}

/// What is made of the stacks. Without any, the tree as text.
#[derive(Debug, Args)]
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnOff {
    On,
    Off,
}

#[derive(Debug, Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    pub of: JobArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Pack that and the collector's log into a gzipped tar to send to others, without keys, tokens and your name
    #[arg(long, value_name = "FILE")]
    pub bundle: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// Print a complete settings file with all defaults
    #[arg(long)]
    pub print: bool,
}

#[derive(Debug, Args)]
pub struct ServeArgs {
    #[command(flatten)]
    pub of: JobArgs,
    /// Port of the page, and the first of three [default: 18892, or the next that is free]
    #[arg(long, value_name = "PORT", value_parser = base_port)]
    pub port: Option<BasePort>,
}

#[derive(Debug, Args)]
pub struct KeygenArgs {
    /// Where to write it [default: ~/.config/xpu-top/key]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Create no key: print the HTTP token that belongs to the existing key
    #[arg(long)]
    pub token: bool,
}

fn job(text: &str) -> Result<JobName, String> {
    let cleaned = JobName::cleaned(text);
    if cleaned.as_str() == text {
        Ok(cleaned)
    } else {
        Err(format!("write letters, digits, `.`, `_`, `:` and `-` only, for example {cleaned}"))
    }
}

fn rank(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_no_number| {
        "write a rank's number, as the rank column of `xpu-top status` has it: 6".to_owned()
    })
}

fn ranks(text: &str) -> Result<RankList, String> {
    const MOST: usize = 1 << 20;
    let wrong = || "write ranks like 0-7,16".to_owned();
    let mut all = std::collections::BTreeSet::new();
    for item in text.split(',') {
        let (from, to) = item.split_once('-').unwrap_or((item, item));
        let number = |text: &str| text.trim().parse::<u32>().ok();
        let (Some(from), Some(to)) = (number(from), number(to)) else { return Err(wrong()) };
        if from > to || (to - from) as usize >= MOST - all.len() {
            return Err(wrong());
        }
        all.extend((from..=to).map(Rank));
    }
    Ok(RankList(all.into_iter().collect()))
}

/// 0 stands for the default.
fn sample_rate(text: &str) -> Result<u32, String> {
    let rate = text.parse().ok().filter(|rate| (0..=SampleOrder::RATE).contains(rate));
    rate.ok_or_else(|| format!("write readings per second, {} at most", SampleOrder::RATE))
}

fn kinds(text: &str) -> Result<KindList, String> {
    let all = text.split(',').filter(|word| !word.is_empty()).map(|word| {
        Kind::ALL
            .into_iter()
            .find(|kind| kind.word() == word)
            .ok_or_else(|| format!("unknown finding {word}: write {}", Kind::ALL.map(Kind::word).join(", ")))
    });
    all.collect::<Result<_, _>>().map(KindList)
}

fn length(text: &str) -> Result<Duration, String> {
    let length = time::duration(text).filter(|length| !length.is_zero());
    length.ok_or_else(|| "write a time like 90s, 10m or 1h30m".to_owned())
}

/// A duration that may be shorter than a second.
fn trace_length(text: &str) -> Result<Duration, String> {
    let length = time::duration(text).filter(|length| !length.is_zero() && *length <= LONGEST_TRACE);
    length.ok_or_else(|| "write a time like 500ms, 2s or 1m, an hour at most".to_owned())
}

/// Longer than anybody could look at.
const LONGEST_TRACE: Duration = Duration::from_hours(1);

pub fn base_port(text: &str) -> Result<BasePort, String> {
    text.parse().ok().and_then(BasePort::new).ok_or_else(|| "write a port from 1 to 65533".to_owned())
}

/// Something on the command line, or in a variable or file it names, that cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    #[error("{variable}={text}: {what}", variable = BasePort::VARIABLE)]
    BasePort { text: String, what: String },
    #[error("cannot read the hosts file {path}: {error}; check --job-hosts", path = path.display())]
    HostsFile { path: PathBuf, error: std::io::Error },
    #[error("{0} names no host; write one host a line, or `--hosts a,node[1-8]`")]
    NoHosts(String),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("{0}")]
    Value(String),
}

impl CommandLine {
    /// The user's settings, and what the command line says against them.
    pub fn config(&self) -> Result<Config, UsageError> {
        let config = Config::find(self.config.as_deref())?;
        let price = self.price()?.or(config.price);
        Ok(Config { mouse: config.mouse && !self.no_mouse, price, ..config })
    }

    /// From the command line, else from the environment.
    fn price(&self) -> Result<Option<Price>, UsageError> {
        let named =
            std::env::var(PRICE).ok().filter(|text| self.gpu_hour_price.is_none() && !text.is_empty());
        let price = named.map(|text| text.parse::<Price>()).transpose();
        let price = price.map_err(|what| UsageError::Value(format!("{PRICE}: {what}")))?;
        Ok(self.gpu_hour_price.or(price))
    }
}
