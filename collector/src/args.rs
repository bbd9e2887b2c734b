//! The command line of `xpu-collector`.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use clap::Parser;
use xpu_collector::{
    CaptureWay, Config, HangsConfig, HttpConfig, KeyWay, KinetoName, OpenError, Pages, Push, PushError,
    RelayConfig, Token, TokenError, choose_address,
};
use xpu_model::{baseline, duration::WhatIfEvery, finding::Price, hangs, hosts::Hosts, peak::Peaks};
use xpu_net::key::{Key, KeyError};
use xpu_wire::{
    endpoint::{BasePort, RuntimeDir, host_name, variable},
    id::HostName,
};

/// Serves the training ranks of this host to `xpu-top`. `xpu-top run` starts it. With --relay it serves no
/// ranks: it forwards the frames of other hosts, and `xpu-top` connects only to it.
#[derive(Debug, Parser)]
#[command(version = xpu_wire::build(), about)]
pub(crate) struct Args {
    /// Address to listen on [default: 127.0.0.1; 0.0.0.0 with a key]
    #[arg(long, value_name = "ADDRESS")]
    bind: Option<IpAddr>,
    /// First of three ports: HTTP, data, control
    #[arg(long, value_name = "PORT", env = BasePort::VARIABLE, default_value = "18889", value_parser = base_port)]
    base_port: BasePort,
    /// Name of this host [default: its own name]
    #[arg(long, value_name = "NAME")]
    host_name: Option<String>,
    /// Directory of the workers' socket and the lock
    #[arg(long, value_name = "DIR")]
    runtime_dir: Option<PathBuf>,
    /// File with the key [default: `XPU_TOP_KEY_FILE`, else ~/.config/xpu-top/key if there is one]
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Use no key even if there is one
    #[arg(long, conflicts_with = "key_file")]
    no_key: bool,
    /// Accept other hosts without a key: anyone can watch
    #[arg(long)]
    insecure: bool,
    /// Exit after this long without ranks and requests; 0: never
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    idle_exit: u64,
    /// Where to keep the baseline of each run, for `--baseline` [default: ~/.local/state/xpu-top/runs]
    #[arg(long, value_name = "DIR")]
    runs_dir: Option<PathBuf>,
    /// Keep no baselines
    #[arg(long, conflicts_with = "runs_dir")]
    no_runs: bool,
    /// Never sample Python stacks of jobs whose GPUs wait for their hosts
    #[arg(long, env = "XPU_TOP_NO_SAMPLES", value_parser = clap::builder::FalseyValueParser::new())]
    no_samples: bool,
    /// Where to keep the incident folders of hangs and failed ranks [default: ~/.local/state/xpu-top/hangs]
    #[arg(long, value_name = "DIR")]
    hangs_dir: Option<PathBuf>,
    /// Keep no incident folders
    #[arg(long, conflicts_with = "hangs_dir")]
    no_hangs: bool,
    /// Command line to run once per hang or failed rank, for jobs that set none; see `xpu-top run --help`
    #[arg(long, value_name = "CMD", env = variable::ON_HANG)]
    on_hang: Option<String>,
    /// Do not ask NCCL's RAS service about a job that hangs; `xpu-top ras` still asks
    #[arg(long)]
    no_ras: bool,
    /// Forward between viewers and the collectors of other hosts, given with --hosts or --job-hosts
    #[arg(long, conflicts_with_all = ["runtime_dir", "idle_exit"])]
    pub(crate) relay: bool,
    /// Hosts behind the relay, comma-separated: `a,node[1-8]`
    #[arg(long, value_name = "LIST", requires = "relay")]
    hosts: Option<String>,
    /// File with the hosts behind the relay, one per line: `host[:port]`, `node[001-128]`
    #[arg(long, value_name = "FILE", requires = "relay", conflicts_with = "hosts")]
    job_hosts: Option<PathBuf>,
    /// First port of hosts given without one [default: the same as --base-port]
    #[arg(long, value_name = "PORT", requires = "relay", value_parser = base_port)]
    hosts_base_port: Option<BasePort>,
    #[command(flatten)]
    http: HttpArgs,
    /// Serve the pages of this recording, and nothing else
    #[arg(long, value_name = "FILE", hide = true, conflicts_with = "relay", requires_all = ["recorded_at", "recorded_in"])]
    pub(crate) recording: Option<PathBuf>,
    /// The moment that they show
    #[arg(long, value_name = "NANOSECONDS", hide = true)]
    pub(crate) recorded_at: Option<u64>,
    /// The file that it was copied from
    #[arg(long, value_name = "FILE", hide = true)]
    pub(crate) recorded_in: Option<PathBuf>,
    /// Print the token that belongs to the key, and exit
    #[arg(long)]
    pub(crate) print_token: bool,
    /// Descriptor to which to write `ready`, or the error
    #[arg(long, value_name = "FD", hide = true)]
    pub(crate) ready_fd: Option<i32>,
    /// Read the stacks of this process, write them to standard output, and exit
    #[arg(long, value_name = "PID", hide = true)]
    pub(crate) read_stacks: Option<u32>,
    /// Sample the main thread of this process for five seconds, write where it was to standard output, and exit
    #[arg(long, value_name = "PID", hide = true)]
    pub(crate) sample_main_thread: Option<u32>,
    /// Sample the Python stacks of this process, as ordered on standard input, and write them to standard output
    #[arg(long, value_name = "PID", hide = true)]
    pub(crate) sample_python: Option<u32>,
    /// The descriptor of its ledger
    #[arg(long, value_name = "FD", hide = true, requires = "sample_python")]
    pub(crate) ledger: Option<u32>,
    /// Locate a fatal signal from its handler's note on standard input, and exit
    #[arg(long, hide = true)]
    pub(crate) read_crash: bool,
    /// Name the kernel that an exception stopped, from this core dump of a GPU, remove the file, and exit
    #[arg(long, value_name = "FILE", hide = true)]
    pub(crate) read_gpu_core: Option<PathBuf>,
    /// With native frames: each thread is stopped for a moment
    #[arg(long, hide = true)]
    pub(crate) native: bool,
    /// Also read the kernels on its GPUs, from a core dump that ends the process
    #[arg(long, hide = true)]
    pub(crate) gpus: bool,
}

/// Pages and control over HTTP, at the first port.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "HTTP")]
struct HttpArgs {
    /// Serve no HTTP
    #[arg(long, env = "XPU_TOP_NO_HTTP", value_parser = clap::builder::FalseyValueParser::new())]
    no_http: bool,
    /// Address to serve HTTP on [default: as --bind]
    #[arg(long, value_name = "ADDRESS", env = "XPU_TOP_HTTP_BIND")]
    http_bind: Option<IpAddr>,
    /// File with the bearer token that requests must carry [default: with a key, what `xpu-top keygen --token` prints]
    #[arg(long, value_name = "FILE", env = "XPU_TOP_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// Serve /metrics without a token
    #[arg(long, env = "XPU_TOP_OPEN_METRICS", value_parser = clap::builder::FalseyValueParser::new())]
    open_metrics: bool,
    /// Also serve the metrics and requests of this tool, on --compat-port too
    #[arg(long, value_name = "OF", env = "XPU_TOP_COMPAT")]
    compat: Option<Compat>,
    /// Port of xpu-timer's requests; 0: none [default: one below --base-port, 18888]
    #[arg(long, value_name = "PORT", env = "XPU_TOP_COMPAT_PORT", requires = "compat")]
    compat_port: Option<u16>,
    /// Also serve a gauge family for each of the 64 most expensive shapes of a rank, as in the first
    /// xpu-timer
    #[arg(long, env = "XPU_TOP_PER_SHAPE", value_parser = clap::builder::FalseyValueParser::new())]
    per_shape: bool,
    /// Price of a GPU-hour, `2.5` or `2.5 EUR`: documents also report lost GPU-hours in money
    #[arg(long, value_name = "PRICE", env = "XPU_TOP_GPU_HOUR_PRICE")]
    gpu_hour_price: Option<Price>,
    /// Also send the metrics to this OTLP/HTTP receiver: `http://127.0.0.1:4318`
    #[arg(long, value_name = "URL", env = "XPU_TOP_OTLP")]
    otlp: Option<String>,
    /// Send interval
    #[arg(long, value_name = "SECONDS", env = "XPU_TOP_OTLP_INTERVAL", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=3600))]
    otlp_interval: u64,
    /// Estimate this often what stragglers cost each job, from a capture of five steps, as `xpu-top what-if
    /// --live` does: `300`, `5m`; 0: off
    #[arg(long, value_name = "DURATION", env = WhatIfEvery::VARIABLE)]
    what_if_every: Option<WhatIfEvery>,
}

/// Another tool whose readers continue to work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Compat {
    XpuTimer,
}

fn base_port(text: &str) -> Result<BasePort, String> {
    text.parse().ok().and_then(BasePort::new).ok_or_else(|| "write a port from 1 to 65533".to_owned())
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error("{0}")]
    Peaks(String),
    #[error("cannot read {path}: {error}; name a file with one host per line", path = path.display())]
    Hosts { path: PathBuf, error: io::Error },
    #[error("the relay has no hosts: name them with --hosts a,node[1-8] or --job-hosts FILE")]
    NoHosts,
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error(transparent)]
    Push(#[from] PushError),
    #[error(transparent)]
    Open(#[from] OpenError),
}

impl Args {
    fn key(&self) -> Result<Option<Key>, KeyError> {
        if self.no_key { Ok(None) } else { Key::find(self.key_file.as_deref()) }
    }

    fn host(&self) -> HostName {
        self.host_name.as_deref().map_or_else(host_name, HostName::from)
    }

    pub(crate) fn relay(&self) -> Result<RelayConfig, ConfigError> {
        let key = self.key()?;
        let base = self.hosts_base_port.unwrap_or(self.base_port);
        let hosts = match (&self.job_hosts, &self.hosts) {
            (Some(path), _) => Hosts::from_file(path, base)
                .map_err(|error| ConfigError::Hosts { path: path.clone(), error })?,
            (None, list) => Hosts::from_list(list.as_deref().unwrap_or_default(), base),
        };
        for warning in &hosts.warnings {
            tracing::warn!("{warning}");
        }
        if hosts.endpoints.is_empty() {
            return Err(ConfigError::NoHosts);
        }
        Ok(RelayConfig {
            address: choose_address(self.bind, key.is_some(), self.insecure)?,
            base: self.base_port,
            host: self.host(),
            key,
            endpoints: hosts.endpoints,
        })
    }

    /// The token derived from the key, as text; `None` without a key.
    pub(crate) fn token(&self) -> Result<Option<String>, ConfigError> {
        Ok(self.key()?.map(|key| Token::text_of(&key)))
    }

    /// `None` if HTTP is off.
    pub(crate) fn http(&self) -> Result<Option<HttpConfig>, ConfigError> {
        let HttpArgs { no_http, http_bind, token_file, open_metrics, otlp, otlp_interval, .. } = &self.http;
        let token = match (token_file, self.key()?) {
            (Some(path), _) => Some(Token::read(path)?),
            (None, key) => key.as_ref().map(Token::of),
        };
        let every = Duration::from_secs(*otlp_interval);
        let push = otlp.as_deref().map(|url| Push::to(url, every)).transpose()?;
        if *no_http && push.is_none() {
            return Ok(None);
        }
        let address = choose_address(http_bind.or(self.bind), token.is_some(), self.insecure)?;
        let ports = if *no_http { Vec::new() } else { self.http_ports() };
        let addresses = ports.into_iter().map(|port| SocketAddr::new(address, port)).collect();
        let pages = Pages {
            compat: self.http.compat.is_some(),
            per_shape: self.http.per_shape,
            peaks: peaks()?,
            price: self.http.gpu_hour_price,
        };
        let bound = choose_address(self.bind, self.key()?.is_some(), self.insecure)?;
        // A relay uses the directory only to keep captures; without one it keeps none.
        let captures = self.runtime().ok().map(|runtime| self.capture_way(&runtime, bound));
        Ok(Some(HttpConfig {
            addresses,
            token,
            open_metrics: *open_metrics,
            pages,
            captures,
            push,
            what_if_every: self.http.what_if_every.and_then(|WhatIfEvery(every)| every),
        }))
    }

    fn http_ports(&self) -> Vec<u16> {
        let first = self.base_port.http();
        let compat = self.http.compat.map(|Compat::XpuTimer| self.http.compat_port.unwrap_or(first - 1));
        [first].into_iter().chain(compat.filter(|&port| port > 0)).collect()
    }

    fn capture_way(&self, runtime: &RuntimeDir, address: IpAddr) -> CaptureWay {
        let key = match &self.key_file {
            _ if self.no_key => KeyWay::None,
            Some(path) => KeyWay::Named(path.clone()),
            None => KeyWay::Usual,
        };
        let directory = runtime.path().join(format!("captures-{}", self.base_port.0));
        CaptureWay { address, base: self.base_port, key, directory }
    }

    fn runtime(&self) -> Result<RuntimeDir, OpenError> {
        match &self.runtime_dir {
            Some(named) => Ok(RuntimeDir::at(named)),
            None => Ok(RuntimeDir::claim()?.dir),
        }
    }

    pub(crate) fn config(&self) -> Result<Config, ConfigError> {
        let key = self.key()?;
        let runtime = self.runtime()?;
        Ok(Config {
            peaks: peaks()?,
            address: choose_address(self.bind, key.is_some(), self.insecure)?,
            base: self.base_port,
            host: self.host(),
            kineto: KinetoName::of(|name| std::env::var_os(name), &runtime),
            runtime,
            key,
            // This program, even if its file has been replaced meanwhile.
            reader: PathBuf::from("/proc/self/exe"),
            idle_exit: (self.idle_exit > 0).then(|| Duration::from_secs(self.idle_exit)),
            runs: self.runs(),
            samples: !self.no_samples,
        })
    }

    /// `None` for a relay: the collectors behind it do that.
    pub(crate) fn hangs(&self) -> Result<Option<HangsConfig>, ConfigError> {
        if self.relay {
            return Ok(None);
        }
        let usual = || hangs::folder(|name| std::env::var_os(name));
        let folder = self.hangs_dir.clone().or_else(usual).filter(|_| !self.no_hangs);
        let (host, on_hang) = (self.host(), self.on_hang.clone());
        let (base, key) = (self.base_port, self.key()?);
        Ok(Some(HangsConfig { folder, host, base, key, on_hang, asks_ras: !self.no_ras }))
    }

    fn runs(&self) -> Option<PathBuf> {
        let usual = || baseline::folder(|name| std::env::var_os(name));
        self.runs_dir.clone().or_else(usual).filter(|_| !self.no_runs)
    }
}

fn peaks() -> Result<Peaks, ConfigError> {
    let said = std::env::var(Peaks::VARIABLE).unwrap_or_default();
    Peaks::parse(&said).map_err(ConfigError::Peaks)
}
