//! Makes sure that a collector serves this host.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _},
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::{fs::OpenOptionsExt as _, process::CommandExt as _},
    },
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail};
use xpu_wire::endpoint::{self, BasePort, RuntimeDir};

use super::{CollectorKey, warn};
use crate::parts::{Part, Parts};

/// How long training waits for the collector to say that it serves.
const PATIENCE: Duration = Duration::from_secs(3);

/// A log that is longer is begun anew.
const LONGEST_LOG: u64 = 1 << 20;

/// Longest line that is read of a collector.
const LONGEST_LINE: u64 = 4096;

/// Returns when a collector serves, or with why none does.
pub(super) fn ensure(runtime: &RuntimeDir, base: BasePort, key: &CollectorKey<'_>) -> anyhow::Result<()> {
    // Checked by its socket and not by its lock: a starting collector would find the lock held by the check.
    if endpoint::connect(&runtime.socket(base)?).is_ok() {
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
        // It serves other jobs as well: what this one wants is read of its ranks.
        .env_remove(endpoint::variable::ON_HANG)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
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
    let mut child = command.spawn().context("cannot start it")?;
    // The pipe's writing end belongs to the command: with it goes the last copy here.
    drop(command);
    child.wait()?;
    read_answer(answer.into(), runtime)
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

/// Makes the command a session of its own and nobody's child: the job must not find it among its children.
fn detach(command: &mut Command, ready: OwnedFd) {
    // SAFETY: only async-signal-safe calls (POSIX). This process has one thread, so the forked one may go on to exec.
    unsafe {
        command.pre_exec(move || {
            if libc::setsid() < 0 {
                return Err(io::Error::last_os_error());
            }
            match libc::fork() {
                -1 => return Err(io::Error::last_os_error()),
                0 => {}
                _ => libc::_exit(0),
            }
            // It was made to be closed by exec, and is to outlive this one.
            match libc::fcntl(ready.as_raw_fd(), libc::F_SETFD, 0) {
                -1 => Err(io::Error::last_os_error()),
                _ => Ok(()),
            }
        });
    }
}

/// `ready`, or what is wrong.
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
