//! Errors of the command line.

use std::path::PathBuf;

use xpu_net::key::KeyError;
use xpu_tui::config::ConfigError;
use xpu_wire::endpoint::BasePort;

/// An error on the command line, or in a variable or file that it names.
#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    #[error("{variable}={text}: {what}", variable = BasePort::VARIABLE)]
    BasePort { text: String, what: String },
    #[error("cannot read the hosts file {path}: {error}; check --job-hosts", path = path.display())]
    HostsFile { path: PathBuf, error: std::io::Error },
    #[error("{0} names no host; write one host per line, or `--hosts a,node[1-8]`")]
    NoHosts(String),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("{0}")]
    Value(String),
}
