//! The web page of a job on many hosts.

use clap::Args;
use xpu_wire::endpoint::BasePort;

use super::{JobArgs, parse::base_port};

#[derive(Debug, Args)]
pub struct ServeArgs {
    #[command(flatten)]
    pub of: JobArgs,
    /// Port of the page, and the first of three [default: 18892, or the next that is free]
    #[arg(long, value_name = "PORT", value_parser = base_port)]
    pub port: Option<BasePort>,
}
