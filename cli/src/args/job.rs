//! Arguments for the hosts, the job, and the connections to collectors.

use std::path::PathBuf;

use clap::Args;
use xpu_model::hosts::{Hosts, service, slurm};
use xpu_net::key::Key;
use xpu_wire::{
    endpoint::{BasePort, Ssh},
    id::JobName,
};

use super::{
    UsageError,
    parse::{base_port, job_name},
};

/// The options that name hosts, and those of the connections to their collectors. A command that reads a
/// file refuses them.
pub(super) const HOSTS: [&str; 5] = ["job_hosts", "hosts", "slurm_job", "k8s_service", "ssh"];
pub(super) const CONNECTION: [&str; 2] = ["base_port", "key_file"];

/// The help of `--job` for commands that choose no job themselves.
pub(super) const ONE_JOB: &str = "Name of the job; needed if several run [default: the only one]";

/// The hosts, and how they are reached.
#[derive(Clone, Debug, Default, Args)]
pub struct HostsArgs {
    /// File with one host per line: `host[:port]`, `node[001-128]`
    #[arg(long, value_name = "FILE", conflicts_with = "hosts")]
    pub job_hosts: Option<PathBuf>,
    /// Comma-separated hosts: `a,node[1-8]` [default: this host]
    #[arg(long, value_name = "LIST")]
    pub hosts: Option<String>,
    /// The hosts of this Slurm job, from `squeue`
    #[arg(long, value_name = "ID", conflicts_with_all = ["job_hosts", "hosts"])]
    pub slurm_job: Option<String>,
    /// The pods of this headless Kubernetes service: all addresses of the name
    #[arg(long, value_name = "NAME", conflicts_with_all = ["job_hosts", "hosts", "slurm_job"])]
    pub k8s_service: Option<String>,
    /// Reach the hosts through your ssh if their ports are closed: `--ssh`, or `--ssh='ssh -p 2222'`
    #[arg(long, value_name = "COMMAND", num_args = 0..=1, require_equals = true, default_missing_value = "ssh")]
    pub ssh: Option<String>,
}

/// The hosts, the job and the key.
#[derive(Clone, Debug, Default, Args)]
pub struct JobArgs {
    #[command(flatten)]
    pub on: HostsArgs,
    /// Name of the job [default: the job with the most living ranks]
    #[arg(long, value_name = "NAME", value_parser = job_name)]
    pub job: Option<JobName>,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Port and key of collectors.
#[derive(Clone, Debug, Default, Args)]
pub struct ConnectionArgs {
    /// First of the collectors' three ports [default: `XPU_TOP_BASE_PORT`, else 18889]
    #[arg(long, value_name = "PORT", value_parser = base_port)]
    pub base_port: Option<BasePort>,
    /// File with the key [default: `XPU_TOP_KEY_FILE`, else ~/.config/xpu-top/key if there is one]
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
}

impl ConnectionArgs {
    pub fn base(&self) -> Result<BasePort, UsageError> {
        let set = std::env::var(BasePort::VARIABLE).ok().filter(|text| !text.is_empty());
        match (self.base_port, set) {
            (Some(base), _) => Ok(base),
            (None, Some(text)) => base_port(&text).map_err(|what| UsageError::BasePort { text, what }),
            (None, None) => Ok(BasePort::DEFAULT),
        }
    }

    pub fn key(&self) -> Result<Option<Key>, UsageError> {
        Ok(Key::find(self.key_file.as_deref())?)
    }
}

impl JobArgs {
    /// The given options as text, for another command line.
    pub fn line(&self) -> String {
        let path = |path: &PathBuf| path.display().to_string();
        let on = &self.on;
        let given = [
            ("job-hosts", on.job_hosts.as_ref().map(path)),
            ("hosts", on.hosts.clone()),
            ("slurm-job", on.slurm_job.clone()),
            ("k8s-service", on.k8s_service.clone()),
            ("job", self.job.as_ref().map(ToString::to_string)),
            ("base-port", self.connection.base_port.map(|base| base.0.to_string())),
            ("key-file", self.connection.key_file.as_ref().map(path)),
        ];
        let given = given.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let ssh = on.ssh.as_ref().map(|ssh| format!(" --ssh={}", quoted(ssh)));
        given
            .map(|(name, value)| format!(" --{name} {}", quoted(&value)))
            .chain(ssh)
            .collect::<Vec<_>>()
            .concat()
    }

    pub fn hosts(&self) -> Result<Hosts, UsageError> {
        self.on.hosts(&self.connection)
    }
}

impl HostsArgs {
    /// Whether hosts are given; without any, it is this host.
    pub fn are_named(&self) -> bool {
        self.job_hosts.is_some()
            || self.hosts.is_some()
            || self.slurm_job.is_some()
            || self.k8s_service.is_some()
    }

    pub fn hosts(&self, connection: &ConnectionArgs) -> Result<Hosts, UsageError> {
        let mut hosts = self.named(connection.base()?)?;
        if let Some(ssh) = &self.ssh {
            let ssh = Ssh(ssh.as_str().into());
            for endpoint in &mut hosts.endpoints {
                endpoint.ssh = Some(ssh.clone());
            }
        }
        Ok(hosts)
    }

    fn named(&self, base: BasePort) -> Result<Hosts, UsageError> {
        let (hosts, named) = if let Some(path) = &self.job_hosts {
            let unreadable = |error| UsageError::HostsFile { path: path.clone(), error };
            (Hosts::from_file(path, base).map_err(unreadable)?, path.display().to_string())
        } else if let Some(list) = &self.hosts {
            (Hosts::from_list(list, base), "--hosts".to_owned())
        } else if let Some(id) = &self.slurm_job {
            let nodes = slurm::nodes(id).map_err(UsageError::Value)?;
            (Hosts::from_list(&nodes, base), format!("Slurm job {id}"))
        } else if let Some(name) = &self.k8s_service {
            let addresses = service::addresses(name, base).map_err(UsageError::Value)?;
            (Hosts::from_list(&addresses, base), format!("service {name}"))
        } else {
            return Ok(Hosts::here(base));
        };
        if !hosts.endpoints.is_empty() {
            return Ok(hosts);
        }
        // Reports the first warning, if there is one.
        Err(match hosts.warnings.into_iter().next() {
            Some(warning) => UsageError::Value(warning.to_string()),
            None => UsageError::NoHosts(named),
        })
    }
}

/// Quotes a text so that a shell reads it as one word.
pub fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._:,@%+-".contains(c);
    if text.chars().all(plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', "'\\''")) }
}
