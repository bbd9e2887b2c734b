//! The collector's listening sockets, and the lock that admits only one collector.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    time::Duration,
};

use xpu_model::peak::Peaks;
use xpu_net::{key::Key, socket};
use xpu_wire::{
    endpoint::{BasePort, RuntimeDir, RuntimeDirError},
    id::HostName,
};
use zmq::{Context, Socket};

use crate::{
    kineto::KinetoName,
    lock::{Lock, LockError},
    upstream::Upstream,
};

/// A collector's configuration.
#[derive(Clone, Debug)]
pub struct Config {
    pub address: IpAddr,
    pub base: BasePort,
    /// Its host's name.
    pub host: HostName,
    pub runtime: RuntimeDir,
    pub key: Option<Key>,
    /// GPU peaks that override the data sheets.
    pub peaks: Peaks,
    /// This program, which also reads stacks, with `--read-stacks`.
    pub reader: PathBuf,
    /// The name that PyTorch's profilers poll.
    pub kineto: KinetoName,
    /// The collector exits after this time without living ranks and requests.
    pub idle_exit: Option<Duration>,
    /// The folder of the runs' baselines; `None` if none are kept.
    pub runs: Option<PathBuf>,
    /// Whether to sample main threads of jobs whose GPUs wait for their hosts.
    pub samples: bool,
}

/// The collector's descriptor limit: silent connections must not use up those of ranks and viewers.
const DESCRIPTORS: usize = 65_536;

/// The listen address: every interface with a key, loopback only without.
pub fn choose_address(named: Option<IpAddr>, has_key: bool, insecure: bool) -> Result<IpAddr, OpenError> {
    match named {
        None if has_key => Ok(Ipv4Addr::UNSPECIFIED.into()),
        None => Ok(Ipv4Addr::LOCALHOST.into()),
        Some(address) if address.is_loopback() || has_key || insecure => Ok(address),
        Some(address) => Err(OpenError::Unprotected { address }),
    }
}

/// The bound sockets, and the lock that allows this process to bind them.
pub(crate) struct Sockets {
    pub workers: Socket,
    pub viewers: ViewerSockets,
    path: PathBuf,
    _lock: Lock,
}

impl Sockets {
    /// `make` runs before the workers' socket is bound: a job that finds that socket finds what `make` made.
    pub(crate) fn bind<T>(config: &Config, make: impl FnOnce() -> T) -> Result<(Self, T), OpenError> {
        socket::raise_descriptor_limit(DESCRIPTORS);
        config.runtime.prepare()?;
        let path = config.runtime.socket(config.base)?;
        let lock = Lock::take(&config.runtime.lock(config.base))?;
        let served = if config.key.is_some() { RuntimeDir::WITH_KEY } else { RuntimeDir::WITHOUT_KEY };
        if let Err(error) = lock.note(served) {
            tracing::warn!("cannot write into the lock: {error}");
        }
        let context = Context::new();
        let viewers = ViewerSockets::bind(&context, config.address, config.base, config.key.as_ref())?;
        let made = make();
        // libzmq removes a socket that an earlier collector left behind, so only the holder of the lock may
        // bind.
        let workers = socket::workers(&context).map_err(OpenError::Library)?;
        workers
            .bind(&format!("ipc://{}", path.display()))
            .map_err(|error| OpenError::Ipc { path: path.clone(), error })?;
        // The socket itself checks the peer's user; these permissions keep others out even if the umask is
        // loose.
        if let Err(error) = fs::set_permissions(&path, fs::Permissions::from_mode(0o600)) {
            tracing::warn!("cannot make {} private: {error}", path.display());
        }
        Ok((Self { workers, viewers, path, _lock: lock }, made))
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        // The lock is still held, so this socket cannot be a successor's.
        let _ = fs::remove_file(&self.path);
    }
}

/// The viewers' sockets, of a collector or of a relay.
pub(crate) struct ViewerSockets {
    pub data: Socket,
    pub control: Socket,
    /// Their addresses within this process.
    pub upstream: Upstream,
}

impl ViewerSockets {
    pub(crate) fn bind(
        context: &Context,
        address: IpAddr,
        base: BasePort,
        key: Option<&Key>,
    ) -> Result<Self, OpenError> {
        let data = socket::publisher(context, key).map_err(OpenError::Library)?;
        let control = socket::control_server(context, key).map_err(OpenError::Library)?;
        for (socket, port) in [(&data, base.data()), (&control, base.control())] {
            bind_tcp(socket, SocketAddr::new(address, port))?;
        }
        let upstream = Upstream::within(context.clone());
        for (socket, address) in [(&data, &upstream.data), (&control, &upstream.control)] {
            socket.bind(address).map_err(OpenError::Library)?;
        }
        Ok(Self { data, control, upstream })
    }
}

fn bind_tcp(socket: &Socket, address: SocketAddr) -> Result<(), OpenError> {
    socket.set_ipv6(address.is_ipv6()).map_err(OpenError::Library)?;
    socket.bind(&format!("tcp://{address}")).map_err(|error| OpenError::Tcp { address, error })
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(
        "refusing to listen at {address} without a key: anyone could watch; make one with `xpu-top keygen`, or use --insecure"
    )]
    Unprotected { address: IpAddr },
    #[error(transparent)]
    Runtime(#[from] RuntimeDirError),
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error("cannot listen at {path}: {error}; set XPU_TOP_RUNTIME_DIR to a local directory you own", path = path.display())]
    Ipc { path: PathBuf, error: zmq::Error },
    #[error(
        "cannot listen at {address}: {error}; if another program or user has this port, choose --base-port N on all hosts"
    )]
    Tcp { address: SocketAddr, error: zmq::Error },
    #[error(
        "{hosts} hosts are too many for one relay (at most {most}); use several relays, and one relay before them"
    )]
    TooManyHosts { hosts: usize, most: usize },
    #[error("libzmq refused a socket option: {0}; this build does not match its library")]
    Library(zmq::Error),
}

impl OpenError {
    /// Whether another collector already serves. This is no failure.
    pub fn is_served_already(&self) -> bool {
        matches!(self, Self::Lock(LockError::Held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_key_only_this_host_is_served() {
        let remote: IpAddr = "10.0.0.1".parse().unwrap();
        let loopback: IpAddr = "127.0.0.7".parse().unwrap();
        let chosen = |named, key, insecure| choose_address(named, key, insecure).ok();
        assert_eq!(chosen(None, false, false), Some(Ipv4Addr::LOCALHOST.into()));
        assert_eq!(chosen(None, true, false), Some(Ipv4Addr::UNSPECIFIED.into()));
        assert_eq!(chosen(Some(loopback), false, false), Some(loopback));
        assert_eq!(chosen(Some(remote), true, false), Some(remote));
        assert_eq!(chosen(Some(remote), false, true), Some(remote));
        let refused = choose_address(Some(remote), false, false).unwrap_err().to_string();
        assert!(refused.contains("xpu-top keygen"), "{refused}");
    }
}
