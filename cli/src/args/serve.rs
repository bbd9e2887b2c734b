//! The web page of a job on many hosts, or of a recording.

use std::path::PathBuf;

use clap::Args;
use xpu_wire::endpoint::BasePort;

use super::{JobArgs, job::HOSTS, parse::base_port};

// A relay cannot use ssh: the command says so if it is given.
#[derive(Debug, Args)]
#[command(mut_arg("ssh", |ssh| ssh.hide(true)))]
pub struct ServeArgs {
    /// Show this recording, capture or incident folder instead of a running job
    #[arg(value_name = "FILE|DIR", conflicts_with_all = HOSTS, conflicts_with = "base_port")]
    pub file: Option<PathBuf>,
    /// The moment of FILE to show: `02:14:07` (UTC), `+10m` after its start, `-30s` before its end, `50%`
    /// [default: its end]
    #[arg(long, value_name = "TIME", requires = "file", allow_hyphen_values = true)]
    pub at: Option<String>,
    #[command(flatten)]
    pub of: JobArgs,
    /// Port of the page, and the first of three [default: 18892, or the next that is free]
    #[arg(long, value_name = "PORT", value_parser = base_port)]
    pub port: Option<BasePort>,
}
