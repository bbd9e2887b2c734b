//! The command line.

mod captures;
pub mod demo;
mod job;
mod looking;
mod parse;
mod past;
mod qualify;
mod recording;
mod serve;
mod settings;
mod stacks;
mod usage;

use std::{ffi::OsString, path::PathBuf};

pub use captures::{
    DiffArgs, ExportArgs, ExportKind, GemmReplayArgs, Limit, ReportArgs, SelectArgs, WhatIfArgs,
};
use clap::{Args, Parser, Subcommand, ValueEnum};
pub use demo::DemoArgs;
use job::{CONNECTION, HOSTS, ONE_JOB};
pub use job::{ConnectionArgs, HostsArgs, JobArgs, quoted};
pub use looking::LookArgs;
pub use parse::{KindList, RankList};
use parse::{job_name, rank};
pub use past::PastRun;
pub use qualify::QualifyArgs;
pub use recording::{CaptureArgs, KinetoArgs, RecordArgs};
pub use serve::ServeArgs;
pub use settings::{PricedArgs, SettingsArgs};
pub use stacks::{CollectivesArgs, GpuCoreArgs, RasArgs, StacksArgs, StacksForm};
pub use usage::UsageError;
use xpu_analysis::capture::Groups;
use xpu_client::filter::Filter;
use xpu_model::duration::WhatIfEvery;
use xpu_tui::config::Config;
use xpu_wire::id::{JobName, Rank};

/// The exit codes that all commands share.
const EXIT_CODES: &str = "Exit codes of all commands: 64: a wrong option, or a file that cannot be read, 1: another error, unless the command gives 1 a meaning of its own (`xpu-top help COMMAND`)";

/// htop for distributed GPU training.
///
/// Start the workers under `xpu-top run`, then watch them from anywhere with `xpu-top --job-hosts FILE`.
#[derive(Debug, Parser)]
#[command(name = "xpu-top", version = xpu_wire::build(), args_conflicts_with_subcommands = true, after_help = EXIT_CODES)]
pub struct CommandLine {
    #[command(flatten)]
    pub watch: JobArgs,
    #[command(flatten)]
    pub look: LookArgs,
    /// Show a recording instead of a running job
    #[arg(long, value_name = "FILE|DIR", conflicts_with_all = HOSTS, conflicts_with_all = CONNECTION)]
    pub replay: Option<PathBuf>,
    /// Start at this time: `02:14:07` (UTC), `+10m`, `-30s` (before the end), `50%`
    #[arg(long, value_name = "TIME", requires = "replay", allow_hyphen_values = true)]
    pub at: Option<String>,
    /// Compare with an earlier run: `last` of the same job name, number of ranks and GPU model, or a file from
    /// ~/.local/state/xpu-top/runs
    #[arg(long, value_name = "FILE|last")]
    pub baseline: Option<PastRun>,
    /// Only matching ranks: `rank<64 & tflops<0.9*median & host~gpu1`; `state=slow,hung`
    #[arg(long, value_name = "FILTER")]
    pub filter: Option<Filter>,
    /// Parallel groups of the ranks, fastest axis first, as Megatron numbers them: `tp4-cp2-dp4-pp2`; the key F then folds ranks by group
    #[arg(long, value_name = "AXES")]
    pub groups: Option<Groups>,
    /// Do not capture the mouse
    #[arg(long)]
    pub no_mouse: bool,
    #[command(flatten)]
    pub priced: PricedArgs,
    #[command(subcommand)]
    pub command: Option<Command>,
}

impl CommandLine {
    /// The user's settings; values on the command line override them.
    pub fn config(&self) -> Result<Config, UsageError> {
        let config = self.priced.read()?;
        Ok(Config { mouse: config.mouse && !self.no_mouse, ..config })
    }
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a program and watch it: `xpu-top run -- torchrun train.py`
    ///
    /// Exit codes: those of the program, 126: the program cannot be started, 127: it was not found
    Run(RunArgs),
    /// Print the status of a job, and exit
    ///
    /// Exit codes: 0: nothing was found, 1: a finding, 2: the job hangs or a rank died, 3: no data, or nothing was
    /// found but a host or a rank is missing
    Status(StatusArgs),
    /// List the problems of a running job or a recording, and when each began and ended
    ///
    /// Of those that have ended, the last 64 are listed.
    ///
    /// Exit codes: 0: the problems are listed, if there are any, 3: there is no job, or the file has no rank
    Findings(FindingsArgs),
    /// Record what all ranks report to a file, for --replay
    ///
    /// Exit codes: 0: recorded, 3: no host reported, and no file is left
    Record(RecordArgs),
    /// Capture every operation of a few steps on all ranks to a file
    ///
    /// Exit codes: 0: every rank reached the last step, 1: a rank is missing or did not reach it, or with
    /// --kineto gave no trace, 3: there is no job, no data arrived, or no finding occurred in time
    Capture(CaptureArgs),
    /// Trace the same steps on all ranks with PyTorch's profiler (Kineto), and fetch the traces
    ///
    /// Exit codes: 0: every requested rank gave a trace, 1: one did not, 3: there is no job
    Kineto(KinetoArgs),
    /// Summarize a capture: steps, operations, where the time went
    ///
    /// Exit codes: 0: reported, 3: the file has no rank
    Report(ReportArgs),
    /// Compare two captures: what costs more, and whether it exceeds noise
    ///
    /// Exit codes: 0: no limit of --fail-on is exceeded, 1: one is, 3: a file has no complete step or window
    Diff(DiffArgs),
    /// Show what stragglers cost: simulate the steps of a capture or trace without slow ranks and stages
    ///
    /// Exit codes: 0: simulated, with --live at least once, 3: the file cannot be simulated, or with --live
    /// there is no job or no capture was simulated
    WhatIf(WhatIfArgs),
    /// Convert a capture to a Perfetto or Chrome timeline, tables or folded stacks, or a recording's NCCL
    /// calls for PyTorch's flight recorder analyser
    ///
    /// Exit codes: 0: written, 3: no rank of the file could be read
    Export(ExportArgs),
    /// Rerun the GEMMs of a capture one by one on a GPU of this machine, and compare their speed with the job's
    ///
    /// Exit codes: 0: replayed, 1: there is no GPU, no library or not enough memory, or the GPU is in use, 3: there
    /// is nothing to replay
    GemmReplay(GemmReplayArgs),
    /// Measure each GPU before a job or while it is paused (GEMMs, memory, links, NCCL), and name slow GPUs
    ///
    /// Without hosts, measures this host. Measures named hosts through ssh, each alone and with the others;
    /// `ssh HOST xpu-top --version` must work without a prompt. Exit codes: 0: all pass, 1: one fails, 2: one
    /// could not be measured, and none fails
    Qualify(QualifyArgs),
    /// Try it without a GPU: run a simulated job on this machine
    ///
    /// Exit codes: 0: quit, 1: a rank failed. Without a screen those of `status` at the end, and 2 if a rank
    /// failed or steps stopped
    Demo(DemoArgs),
    /// Show where every rank of a job is: the stacks of all threads, merged
    ///
    /// Exit codes: 0: there are stacks, if only of some ranks, 3: there is no job, or no rank has stacks
    Stacks(StacksArgs),
    /// Show the kernels on the GPUs of a hung job that was started with `xpu-top run --gpu-core`; this ends
    /// these ranks
    ///
    /// Exit codes: those of `stacks`; 1: no kernel could be read, 64 also if you do not confirm
    GpuCore(GpuCoreArgs),
    /// Show the last NCCL calls of every rank in order, and where the ranks diverge; also of a job that hangs or has ended
    ///
    /// Exit codes: 0: there are records, if only of some ranks, 3: there is no job, or no rank has a record
    Collectives(CollectivesArgs),
    /// Ask NCCL's RAS service about a job, and compare its counts with those of xpu-top
    ///
    /// Exit codes: 0: RAS has answered, whether the counts agree or not, 3: there is no job, or no answer
    Ras(RasArgs),
    /// Serve the web page of a job on many hosts, or of a recording, from this host
    Serve(ServeArgs),
    /// Switch the hooks of a running job off, and on again
    ///
    /// Exit codes: 0: every rank has switched, 1: a rank or a host has not, 3: there is no job
    Ctl(CtlArgs),
    /// Check the setup of this machine, and say how to fix each problem
    ///
    /// Exit codes: 0: nothing must be fixed, 1: something must be fixed
    Doctor(DoctorArgs),
    /// Show which settings file is read and check it, or print all settings
    ///
    /// Exit codes: 0: the file is valid, or there is none, 64: it is not valid
    Config(ConfigArgs),
    /// Create a key, so that only you can watch from other hosts
    Keygen(KeygenArgs),
}

#[derive(Debug, Args)]
pub struct RunArgs {
    /// Name of the job [default: `XPU_TOP_JOB`, else the Slurm job, else the script's name]
    #[arg(long, value_name = "NAME", value_parser = job_name)]
    pub job: Option<JobName>,
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// Do not start a collector
    #[arg(long)]
    pub no_collector: bool,
    /// Do not set `KINETO_USE_DAEMON` and `KINETO_CONFIG`; then `xpu-top kineto` cannot start a profiler
    #[arg(long)]
    pub no_kineto: bool,
    /// Let `xpu-top gpu-core` name the kernels on the GPUs of a hung job, and name the kernel that fails
    /// (illegal address, assertion) in the report of its rank. For this, CUDA's driver makes core dumps of the
    /// GPUs; at a failing kernel it ends the process with SIGABRT instead of returning an error
    #[arg(long, alias = "gpu-core-on-exception", overrides_with = "gpu_core")]
    pub gpu_core: bool,
    /// Like --gpu-core; also name the kernels on all GPUs half a minute after a hang was saved to disk; this
    /// ends the ranks
    #[arg(long)]
    pub gpu_core_on_hang: bool,
    /// Shell command to run on one host for each hang or failed rank, for a minute at most; its standard input is
    /// the status or the exit report as JSON [default: `XPU_TOP_ON_HANG`]
    #[arg(long, value_name = "CMD")]
    pub on_hang: Option<String>,
    /// File with the job's hosts, one per line, which are asked about a hang before that command runs [default:
    /// `XPU_TOP_JOB_HOSTS`, else the hosts of the Slurm job]
    #[arg(long, value_name = "FILE")]
    pub job_hosts: Option<PathBuf>,
    /// How often the collector estimates what stragglers cost, from a capture of five steps: `5m`; 0: never
    /// [default: `XPU_TOP_WHAT_IF_EVERY`, else from the settings]
    #[arg(long, value_name = "DURATION")]
    pub what_if_every: Option<WhatIfEvery>,
    #[command(flatten)]
    pub settings: SettingsArgs,
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
    /// Also print this rank's GEMMs by shape and collectives by size
    #[arg(long, value_name = "RANK", value_parser = rank)]
    pub rank: Option<Rank>,
    /// Compare with an earlier run: `last` of the same job name, number of ranks and GPU model, or a file from
    /// ~/.local/state/xpu-top/runs
    #[arg(long, value_name = "FILE|last")]
    pub baseline: Option<PastRun>,
    /// Only matching ranks: `rank<64 & tflops<0.9*median & host~gpu1`; `state=slow,hung`
    #[arg(long, value_name = "FILTER", conflicts_with = "rank")]
    pub filter: Option<Filter>,
    /// Answer at once, with dead ranks and hangs but without slow ranks, which take some seconds to find
    #[arg(long)]
    pub now: bool,
    /// Read a recording, at its end or at --at
    #[arg(long, value_name = "FILE|DIR", conflicts_with_all = HOSTS, conflicts_with_all = CONNECTION, conflicts_with_all = ["now", "wait"])]
    pub replay: Option<PathBuf>,
    /// Time in the recording: `02:14:07` (UTC), `+10m`, `-30s` (before the end), `50%`
    #[arg(long, value_name = "TIME", requires = "replay", allow_hyphen_values = true)]
    pub at: Option<String>,
    /// Wait up to this long until all hosts have answered and a job is there [default: 5]
    #[arg(long, value_name = "SECONDS")]
    pub wait: Option<u32>,
    #[command(flatten)]
    pub priced: PricedArgs,
}

#[derive(Debug, Args)]
pub struct FindingsArgs {
    /// A recording, a capture or an incident folder [default: the history that the collectors of a running job keep]
    #[arg(value_name = "FILE|DIR", conflicts_with_all = HOSTS, conflicts_with_all = CONNECTION)]
    pub file: Option<PathBuf>,
    #[command(flatten)]
    pub of: JobArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub priced: PricedArgs,
}

#[derive(Debug, Args)]
#[command(mut_arg("job", |job| job.help(ONE_JOB)))]
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnOff {
    On,
    Off,
}

#[derive(Debug, Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    pub of: HostsArgs,
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Also write the results and the collector's log to a .tar.gz that you can send to others: it contains no
    /// key, no token and not your name
    #[arg(long, value_name = "FILE")]
    pub bundle: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// Print a complete settings file with all defaults
    #[arg(long, conflicts_with = "config")]
    pub print: bool,
    #[command(flatten)]
    pub settings: SettingsArgs,
}

#[derive(Debug, Args)]
pub struct KeygenArgs {
    /// File of the key that is created, or with --token read [default: ~/.config/xpu-top/key]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print the HTTP token of the existing key; create no key
    #[arg(long)]
    pub token: bool,
}

#[cfg(test)]
mod tests;
