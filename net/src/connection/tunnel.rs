//! Reaches hosts whose ports are closed through the user's ssh: one `ssh -N -L` per host, as long as this
//! program runs.
//!
//! ssh listens on Unix sockets in the user's runtime directory, so that no other user of this machine can use
//! the tunnel.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Read as _, Seek as _},
    os::{
        fd::FromRawFd as _,
        unix::{fs::DirBuilderExt as _, net::UnixStream, process::CommandExt as _},
    },
    path::{Path, PathBuf},
    process::{self, Child, Command, Stdio},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use xpu_wire::{
    endpoint::{Endpoint, RuntimeDir, Ssh},
    id::Pid,
    process::Process,
    text,
};

use super::route::Route;

/// Largest number of tunnels, because each takes a process. For more hosts, run a relay where the ports are
/// open.
const MOST: usize = 256;

/// Longest time until ssh has connected.
const PATIENCE: Duration = Duration::from_secs(20);

/// Interval of checks whether ssh has connected.
const LOOK: Duration = Duration::from_millis(50);

/// Bytes of ssh's output that are read.
const SAID: u64 = 4096;

/// Number of earlier programs' folders that are checked.
const OLD: usize = 1024;

/// Prefix of the name of a folder of sockets; the process id of its program follows.
const FOLDER: &str = "ssh-";

/// Options that make ssh a tunnel: it prompts for nothing, reports failure, and detects a lost peer.
const OPTIONS: [&str; 15] = [
    "-N",
    "-T",
    "-a",
    "-S",
    "none",
    "-o",
    "BatchMode=yes",
    "-o",
    "ExitOnForwardFailure=yes",
    "-o",
    "StreamLocalBindUnlink=yes",
    "-o",
    "ServerAliveInterval=15",
    "-o",
    "ConnectTimeout=10",
];

#[derive(Debug, Default)]
pub(super) struct Tunnels {
    open: Mutex<HashMap<Endpoint, Tunnel>>,
    made: AtomicU32,
}

#[derive(Debug)]
struct Tunnel {
    child: Child,
    sockets: [PathBuf; 2],
    said: File,
}

impl Tunnels {
    /// The local address of a host, through a tunnel that is created if there is none. The error names its
    /// remedy.
    pub(super) fn route(&self, endpoint: &Endpoint, ssh: &Ssh) -> Result<Route, String> {
        if let Some(route) = self.known(endpoint) {
            return Ok(route);
        }
        let mut tunnel = self.begin(endpoint, ssh)?;
        let deadline = Instant::now() + PATIENCE;
        // The sockets listen once ssh has logged in.
        while !tunnel.sockets.iter().all(|socket| UnixStream::connect(socket).is_ok()) {
            if let Ok(Some(_)) = tunnel.child.try_wait() {
                return Err(tunnel.why(endpoint, "ended"));
            }
            if Instant::now() >= deadline {
                return Err(tunnel.why(endpoint, "has not connected yet"));
            }
            thread::sleep(LOOK);
        }
        let route = tunnel.route();
        self.lock().insert(endpoint.clone(), tunnel);
        Ok(route)
    }

    fn known(&self, endpoint: &Endpoint) -> Option<Route> {
        let mut open = self.lock();
        let tunnel = open.get_mut(endpoint)?;
        if matches!(tunnel.child.try_wait(), Ok(None)) {
            return Some(tunnel.route());
        }
        open.remove(endpoint);
        None
    }

    fn begin(&self, endpoint: &Endpoint, ssh: &Ssh) -> Result<Tunnel, String> {
        if self.lock().len() >= MOST {
            return Err(format!(
                "more than {MOST} hosts through ssh: start a relay on a host that reaches them, and watch that"
            ));
        }
        let folder = folder().map_err(|why| format!("no directory for the sockets of ssh: {why}"))?;
        let number = self.made.fetch_add(1, Relaxed);
        let sockets = ["control", "data"].map(|name| folder.join(format!("{number}-{name}")));
        start(endpoint, ssh, sockets)
            .map_err(|error| format!("cannot start `{}`: {error}; is it installed?", ssh.0))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Endpoint, Tunnel>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Tunnels {
    fn drop(&mut self) {
        self.lock().clear();
        // Another tunnel of this program may still use it.
        let _ = fs::remove_dir(RuntimeDir::locate().path().join(format!("{FOLDER}{}", process::id())));
    }
}

impl Tunnel {
    fn route(&self) -> Route {
        let [control, data] = self.sockets.each_ref().map(|socket| format!("ipc://{}", socket.display()));
        Route { control, data, is_ipv6: false }
    }

    fn why(&mut self, endpoint: &Endpoint, what: &str) -> String {
        let mut said = String::new();
        let _ = self.said.rewind().and_then(|()| (&self.said).take(SAID).read_to_string(&mut said));
        let last = said.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("it printed nothing");
        let last = text::clean(last);
        let host = &endpoint.host;
        format!("ssh to {host} {what}: {last}; `ssh {host} true` must work without a prompt")
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        for socket in &self.sockets {
            let _ = fs::remove_file(socket);
        }
    }
}

/// This program's folder of sockets. Folders of programs that were killed are removed.
fn folder() -> Result<PathBuf, String> {
    let runtime = RuntimeDir::claim().map_err(|error| error.to_string())?.dir;
    for entry in fs::read_dir(runtime.path()).into_iter().flatten().flatten().take(OLD) {
        let name = entry.file_name();
        let of = name.to_str().and_then(|name| name.strip_prefix(FOLDER)?.parse().ok());
        if of.is_some_and(|pid| Process::find(Pid(pid)) == Process::Elsewhere) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    let own = runtime.path().join(format!("{FOLDER}{}", process::id()));
    match fs::DirBuilder::new().mode(0o700).create(&own) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(format!("{}: {error}", own.display()))
        }
        _ => Ok(own),
    }
}

fn start(endpoint: &Endpoint, Ssh(ssh): &Ssh, sockets: [PathBuf; 2]) -> io::Result<Tunnel> {
    let mut words = ssh.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or("ssh"));
    command.args(words).args(OPTIONS);
    let forward = |socket: &Path, port| format!("{}:127.0.0.1:{port}", socket.display());
    let [control, data] = &sockets;
    command.arg("-L").arg(forward(control, endpoint.base.control()));
    command.arg("-L").arg(forward(data, endpoint.base.data()));
    let said = unnamed()?;
    let host = endpoint.host.trim_start_matches('[').trim_end_matches(']');
    command.arg("--").arg(host).stdin(Stdio::null()).stdout(Stdio::null()).stderr(said.try_clone()?);
    // ssh gets no Ctrl-C from the terminal, and ends when the thread that started it ends, for any reason.
    command.process_group(0);
    // SAFETY: prctl is async-signal-safe, and changes only the new process.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
            Ok(())
        });
    }
    Ok(Tunnel { child: command.spawn()?, sockets, said })
}

/// An anonymous file for ssh's output: unlike a pipe, it never fills up and blocks ssh.
fn unnamed() -> io::Result<File> {
    // SAFETY: the name is NUL-terminated and 'static.
    let file = unsafe { libc::memfd_create(c"xpu-top-ssh".as_ptr(), libc::MFD_CLOEXEC) };
    if file < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just created and has no other owner.
    Ok(unsafe { File::from_raw_fd(file) })
}

#[cfg(test)]
mod tests {
    use xpu_wire::endpoint::BasePort;

    use super::*;

    fn endpoint(ssh: &str) -> (Endpoint, Ssh) {
        let ssh = Ssh(ssh.into());
        (Endpoint { host: "far".to_owned(), base: BasePort::DEFAULT, ssh: Some(ssh.clone()) }, ssh)
    }

    #[test]
    fn the_last_message_of_ssh_is_passed_on() {
        // `sh` treats the arguments as unknown options, reports them, and ends.
        let (far, ssh) = endpoint("sh");
        let why = Tunnels::default().route(&far, &ssh).unwrap_err();
        assert!(why.starts_with("ssh to far ended: ") && why.contains("must work without a prompt"), "{why}");
    }

    #[test]
    fn a_command_that_is_not_there_is_named() {
        let (far, ssh) = endpoint("/no/such/ssh");
        let why = Tunnels::default().route(&far, &ssh).unwrap_err();
        assert!(why.contains("/no/such/ssh") && why.contains("installed"), "{why}");
    }
}
