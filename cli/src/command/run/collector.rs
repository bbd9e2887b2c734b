//! Makes sure that a collector serves this host.

use std::{
    ffi::{c_int, c_uint},
    fs::{self, File, OpenOptions},
    io::{self, Read as _},
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::{fs::OpenOptionsExt as _, process::CommandExt as _},
    },
    path::Path,
    process::{Command, Stdio},
    ptr, thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use xpu_model::duration::WhatIfEvery;
use xpu_wire::endpoint::{self, BasePort, RuntimeDir};

use super::{CollectorKey, warn};
use crate::parts::{Part, Parts};

/// How long training waits for the collector's ready line.
const PATIENCE: Duration = Duration::from_secs(3);

/// Interval of looks for the collector's socket.
const LOOK: Duration = Duration::from_millis(5);

/// Longest log, in bytes, that is continued; a longer one is emptied first.
const LONGEST_LOG: u64 = 1 << 20;

/// Longest line that is read from a collector.
const LONGEST_LINE: u64 = 4096;

/// Starts a collector if none serves. Returns when one serves, or with the reason if none does.
pub(super) fn ensure(
    runtime: &RuntimeDir,
    base: BasePort,
    key: &CollectorKey<'_>,
    what_if_every: impl FnOnce() -> Option<WhatIfEvery>,
) -> anyhow::Result<()> {
    // The check uses the collector's socket and not its lock: a collector that starts now would find the lock
    // held by the check.
    let socket = runtime.socket(base)?;
    if endpoint::connect(&socket).is_ok() {
        let without =
            fs::read_to_string(runtime.lock(base)).is_ok_and(|said| said == RuntimeDir::WITHOUT_KEY);
        if without && !matches!(key, CollectorKey::None) {
            warn(
                "a collector without a key runs here already: this job can be watched only from this host; \
                 to change that, end xpu-collector and start the job again",
            );
        }
        return Ok(());
    }
    let program = Parts::beside_this_program()?.find(Part::Collector)?;
    let log = open_log(&runtime.log(base))?;
    let (answer, ready) = io::pipe()?;
    let mut command = Command::new(program);
    command
        .arg(format!("--base-port={}", base.0))
        .arg("--runtime-dir")
        .arg(runtime.path())
        .arg(format!("--ready-fd={}", ready.as_raw_fd()))
        .env_remove("LD_PRELOAD")
        // The collector also serves other jobs, so it reads this job's settings from the job's ranks, not
        // from its own environment.
        .env_remove(endpoint::variable::ON_HANG)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    if let Some(WhatIfEvery(every)) = what_if_every() {
        command.arg(format!("--what-if-every={}", every.map_or(0, |every| every.as_secs())));
    }
    match key {
        CollectorKey::Usual => {}
        CollectorKey::Named(path) => {
            command.arg("--key-file").arg(path);
        }
        CollectorKey::None => {
            command.arg("--no-key");
        }
    }
    detach(&mut command, ready.into());
    if adopts_orphans() {
        spawn_beside(command)?;
    } else {
        spawn(command)?;
    }
    read_answer(answer.into(), runtime)?;
    // If another rank has started one at the same time, that one may not serve yet.
    let until = Instant::now() + PATIENCE;
    while endpoint::connect(&socket).is_err() && Instant::now() < until {
        thread::sleep(LOOK);
    }
    Ok(())
}

fn spawn(mut command: Command) -> anyhow::Result<()> {
    let mut child = command.spawn().context("cannot start it")?;
    // The command owns the writing end of the pipe: dropping it closes the last copy here.
    drop(command);
    match child.wait() {
        // SIGCHLD is ignored, so the kernel has kept no status.
        Err(error) if error.raw_os_error() == Some(libc::ECHILD) => {}
        ended => drop(ended?),
    }
    Ok(())
}

/// Whether orphans of children become children of this process, and so of the program: in the first process
/// of a container, and with `PR_SET_CHILD_SUBREAPER`.
fn adopts_orphans() -> bool {
    let mut asked: c_int = 0;
    // SAFETY: the kernel writes the number.
    unsafe { libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut asked) };
    std::process::id() == 1 || asked != 0
}

/// Starts the collector under a keeper process, which lives as long as the collector. The program may wait
/// until it has no children left, but `wait` ignores the keeper, which does not end with SIGCHLD (`clone(2)`,
/// `__WCLONE`).
fn spawn_beside(command: Command) -> anyhow::Result<()> {
    // SAFETY: as fork: no memory is shared, and this process has one thread.
    match unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) } {
        -1 => Err(io::Error::last_os_error()).context("cannot start it"),
        0 => wait_for(command),
        _ => Ok(()),
    }
}

fn wait_for(command: Command) -> ! {
    // SAFETY: these calls touch no memory of this process except the name, which they read.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"xpu-top-keeper".as_ptr());
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
        // If spawning fails, the pipe ends without an answer.
        let _ = spawn(command);
        libc::syscall(libc::SYS_close_range, 0, c_uint::MAX, 0);
        while libc::waitpid(-1, ptr::null_mut(), 0) > 0 {}
        libc::_exit(0)
    }
}

fn open_log(path: &Path) -> anyhow::Result<File> {
    let long = fs::metadata(path).is_ok_and(|found| found.len() > LONGEST_LOG);
    OpenOptions::new()
        .create(true)
        .append(!long)
        .write(true)
        .truncate(long)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Gives the command a session of its own and no parent in the job, because the job must not find it among
/// its children. It keeps none of the job's descriptors open: the collector outlives the job, and another
/// process may wait for the end of a pipe or for a lock.
fn detach(command: &mut Command, ready: OwnedFd) {
    // SAFETY: this process has one thread, so the forked process may do everything that this one may, and
    // then call exec.
    unsafe {
        command.pre_exec(move || {
            close_at_exec()?;
            if libc::setsid() < 0 {
                return Err(io::Error::last_os_error());
            }
            match libc::fork() {
                -1 => return Err(io::Error::last_os_error()),
                0 => {}
                _ => libc::_exit(0),
            }
            // The descriptor was created to be closed by exec, but this exec must keep it.
            match libc::fcntl(ready.as_raw_fd(), libc::F_SETFD, 0) {
                -1 => Err(io::Error::last_os_error()),
                _ => Ok(()),
            }
        });
    }
}

/// Makes exec close all descriptors except the standard streams.
fn close_at_exec() -> io::Result<()> {
    let (first, last) = (libc::STDERR_FILENO + 1, c_uint::MAX);
    // SAFETY: no memory is involved, and nothing is closed before exec.
    if unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_CLOEXEC) } == 0 {
        return Ok(());
    }
    // For Linux before 5.11.
    for entry in fs::read_dir("/proc/self/fd")? {
        let number = entry?.file_name().to_str().and_then(|name| name.parse::<c_int>().ok());
        if let Some(number) = number.filter(|&number| number >= first) {
            // SAFETY: as above.
            unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
    Ok(())
}

/// Reads the collector's answer: `ready`, or the error.
fn read_answer(answer: OwnedFd, runtime: &RuntimeDir) -> anyhow::Result<()> {
    let mut item = libc::pollfd { fd: answer.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd, alive for the length of the call.
    if unsafe { libc::poll(&raw mut item, 1, PATIENCE.as_millis() as i32) } <= 0 {
        bail!("it does not answer within {PATIENCE:?}");
    }
    let mut line = String::new();
    // The collector writes its line at once and closes.
    File::from(answer).take(LONGEST_LINE).read_to_string(&mut line)?;
    match line.trim() {
        "ready" => Ok(()),
        "" => bail!("it ended before serving; see its log in {}", runtime.path().display()),
        why => bail!("{why}"),
    }
}
