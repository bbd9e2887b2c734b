//! A process that ends together with the demo, however the demo ends.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    time::{Duration, Instant},
};

/// Time limit for a process to end by itself.
const GRACE: Duration = Duration::from_secs(2);

/// Bytes of its last output that are shown.
const TAIL: u64 = 2048;

/// A child in its own process group. It is killed when this is dropped, and by the kernel when the demo is
/// killed.
#[derive(Debug)]
pub(super) struct Child {
    process: std::process::Child,
    log: PathBuf,
    ended: Option<ExitStatus>,
}

impl Child {
    /// Starts it with both outputs in `log`. Call it only on the main thread, because the kernel's signal at
    /// the parent's end is tied to the thread that started the child.
    pub(super) fn start(command: &mut Command, log: PathBuf) -> io::Result<Self> {
        let output = File::create(&log)?;
        command
            .stdin(std::process::Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0);
        let parent = std::process::id();
        // SAFETY: prctl and getppid are async-signal-safe system calls without pointers.
        unsafe {
            command.pre_exec(move || {
                if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                    return Err(io::Error::last_os_error());
                }
                // If the parent died before prctl, the kernel sends no signal.
                if libc::getppid() as u32 == parent { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
            });
        }
        Ok(Self { process: command.spawn()?, log, ended: None })
    }

    /// How it ended, if it has.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.process.try_wait().ok().flatten();
        }
        self.ended
    }

    pub(super) fn ask_to_end(&mut self) {
        if self.ended().is_none() {
            self.signal(libc::SIGTERM);
        }
    }

    fn signal(&self, signal: libc::c_int) {
        // SAFETY: kill touches no memory; the child was not waited for, so the number of its group is not
        // reused.
        unsafe { libc::kill(-(self.process.id() as libc::pid_t), signal) };
    }

    /// Waits for its end, within a time limit.
    pub(super) fn ends_before(&mut self, deadline: Instant) -> bool {
        while self.ended().is_none() {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }

    /// The end of its output.
    pub(super) fn stderr_tail(&self) -> String {
        tail(&self.log).unwrap_or_default()
    }
}

fn tail(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    let mut bytes = Vec::new();
    file.take(TAIL).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.ended().is_none() {
            self.signal(libc::SIGKILL);
            let _ = self.process.wait();
        }
    }
}

/// Asks all to end, and waits until they have ended or the time limit passes.
pub(super) fn end_all<'a>(children: impl Iterator<Item = &'a mut Child>) {
    let mut children: Vec<_> = children.collect();
    for child in &mut children {
        child.ask_to_end();
    }
    let deadline = Instant::now() + GRACE;
    for child in children {
        child.ends_before(deadline);
    }
}
