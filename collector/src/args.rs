//! The command line of `xpu-collector`.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use clap::Parser;
use xpu_collector::{Config, OpenError, choose_address};
use xpu_shared::{
    endpoint::{BasePort, RuntimeDir, host_name},
    id::HostName,
    key::{Key, KeyError},
    peak::Peaks,
};

/// Serves the training ranks of this host to `xpu-top`. `xpu-top run` starts it by itself.
#[derive(Debug, Parser)]
#[command(version, about)]
pub(crate) struct Args {
    /// Address to listen at [default: 127.0.0.1; 0.0.0.0 with a key]
    #[arg(long, value_name = "ADDRESS")]
    bind: Option<IpAddr>,
    /// First of three ports: HTTP, data, control
    #[arg(long, value_name = "PORT", env = BasePort::VARIABLE, default_value = "18889", value_parser = base_port)]
    base_port: BasePort,
    /// What to call this host [default: its own name]
    #[arg(long, value_name = "NAME")]
    host_name: Option<String>,
    /// Directory of the workers' socket and the lock
    #[arg(long, value_name = "DIR")]
    runtime_dir: Option<PathBuf>,
    /// File with the key [default: `XPU_TOP_KEY_FILE`, else ~/.config/xpu-top/key if there is one]
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Do without a key even if there is one
    #[arg(long, conflicts_with = "key_file")]
    no_key: bool,
    /// Listen to other hosts without a key: anybody can watch
    #[arg(long)]
    insecure: bool,
    /// End when no rank lived and nobody asked for this long; 0: never
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    idle_exit: u64,
    /// Descriptor to write `ready` or what is wrong to
    #[arg(long, value_name = "FD", hide = true)]
    pub(crate) ready_fd: Option<i32>,
    /// Read the stacks of this process, write them to standard output, and end
    #[arg(long, value_name = "PID", hide = true)]
    pub(crate) read_stacks: Option<u32>,
    /// With native frames: each thread is held for a moment
    #[arg(long, hide = true)]
    pub(crate) native: bool,
}

fn base_port(text: &str) -> Result<BasePort, String> {
    text.parse().ok().and_then(BasePort::new).ok_or_else(|| "a port from 1 to 65533".to_owned())
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error("{0}")]
    Peaks(String),
    #[error(transparent)]
    Open(#[from] OpenError),
}

impl Args {
    pub(crate) fn config(&self) -> Result<Config, ConfigError> {
        let key = if self.no_key { None } else { Key::find(self.key_file.as_deref())? };
        let said = std::env::var(Peaks::VARIABLE).unwrap_or_default();
        Ok(Config {
            peaks: Peaks::parse(&said).map_err(ConfigError::Peaks)?,
            address: choose_address(self.bind, key.is_some(), self.insecure)?,
            base: self.base_port,
            host: self.host_name.as_deref().map_or_else(host_name, HostName::from),
            runtime: self.runtime_dir.as_ref().map_or_else(RuntimeDir::locate, RuntimeDir::at),
            key,
            // This very program, also where its file has been replaced meanwhile.
            reader: PathBuf::from("/proc/self/exe"),
            idle_exit: (self.idle_exit > 0).then(|| Duration::from_secs(self.idle_exit)),
        })
    }
}
