//! Arguments of `xpu-top qualify`.

use std::path::PathBuf;

use clap::Args;

use super::{
    ConnectionArgs, HostsArgs,
    job::{CONNECTION, HOSTS},
};

#[derive(Debug, Args)]
#[command(mut_arg("ssh", |ssh| ssh.help("Command that reaches the hosts: `--ssh='ssh -p 2222'` [default: ssh]")))]
pub struct QualifyArgs {
    #[command(flatten)]
    pub of: HostsArgs,
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// Measure nothing: compare the GPUs of earlier runs with each other, from their JSON
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = HOSTS, conflicts_with_all = CONNECTION, conflicts_with_all = ["quick", "beside_job", "program", "worker"])]
    pub compare: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Measure GEMMs, memory and copies to and from the host for a quarter of the time; compare with earlier quick
    /// runs only
    #[arg(long)]
    pub quick: bool,
    /// Measure even if a job runs on these GPUs: both slow down, and figures are not kept
    #[arg(long)]
    pub beside_job: bool,
    /// Path of xpu-top on the other hosts
    #[arg(long, value_name = "PATH", default_value = "xpu-top")]
    pub program: String,
    /// Answer requests on standard input, as on the other hosts
    #[arg(long, hide = true)]
    pub worker: bool,
}
