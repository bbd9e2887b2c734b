//! Reads a process's exit status from the kernel, which notifies only the parent.
//!
//! Kernels from 6.15 on keep the status for holders of a pidfd. Earlier kernels show it until the parent has
//! waited (`proc_pid_stat(5)`), so a thread waits on all pidfds and reads each status at once. If both fail,
//! the status is unknown.

use std::{
    collections::HashMap,
    fs, io,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    ptr,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    thread,
};

use xpu_wire::id::Pid;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitStatus {
    Code(i32),
    Signal(i32),
}

impl ExitStatus {
    /// From a status of `wait(2)`.
    fn of(status: i32) -> Self {
        match status & 0x7f {
            0 => Self::Code(status >> 8 & 0xff),
            signal => Self::Signal(signal),
        }
    }
}

/// Watches one process from now on. Does nothing if the kernel has no pidfd (before 5.3).
#[derive(Debug, Default)]
pub(crate) struct ExitWatch(Option<Watched>);

#[derive(Debug)]
struct Watched {
    process: Arc<OwnedFd>,
    pid: Pid,
    /// The status that the thread read.
    seen: Arc<OnceLock<ExitStatus>>,
}

impl ExitWatch {
    pub(crate) fn of(pid: Pid) -> Self {
        // SAFETY: the call has no precondition, and returns a new descriptor or an error.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.0, 0) };
        let Ok(fd) = i32::try_from(fd) else { return Self(None) };
        if fd < 0 {
            return Self(None);
        }
        // SAFETY: the descriptor was just created and has no other owner.
        let process = Arc::new(unsafe { OwnedFd::from_raw_fd(fd) });
        let watched = Watched { process, pid, seen: Arc::default() };
        if let Some(waiting) = Waiting::get() {
            waiting.add(&watched);
        }
        Self(Some(watched))
    }

    /// The status, once the process has ended.
    pub(crate) fn status(&self) -> Option<ExitStatus> {
        let watched = self.0.as_ref()?;
        kept(&watched.process).or_else(|| watched.seen.get().copied()).or_else(|| of_zombie(watched.pid))
    }
}

impl Drop for ExitWatch {
    fn drop(&mut self) {
        if let (Some(watched), Some(waiting)) = (&self.0, Waiting::get()) {
            waiting.remove(watched);
        }
    }
}

/// `struct pidfd_info` (linux/pidfd.h), its first version.
#[repr(C)]
#[derive(Default)]
struct PidfdInfo {
    mask: u64,
    cgroup: u64,
    ids: [u32; 11],
    exit_code: i32,
}

/// `PIDFD_INFO_EXIT`
const EXIT: u64 = 1 << 3;

/// `PIDFD_GET_INFO`: `_IOWR(0xff, 11, struct pidfd_info)`
const GET_INFO: libc::Ioctl = (3 << 30 | (size_of::<PidfdInfo>() << 16) | 0xff << 8 | 0x0b) as libc::Ioctl;

/// The status that the kernel keeps after the parent has waited.
fn kept(process: &OwnedFd) -> Option<ExitStatus> {
    let mut info = PidfdInfo { mask: EXIT, ..PidfdInfo::default() };
    // SAFETY: the descriptor is open, and the kernel writes as much as the request says there is.
    let code = unsafe { libc::ioctl(process.as_raw_fd(), GET_INFO, &raw mut info) };
    (code == 0 && info.mask & EXIT != 0).then(|| ExitStatus::of(info.exit_code))
}

/// The status that is visible until the parent has waited. `None` for zero, which the kernel also shows
/// without permission.
fn of_zombie(pid: Pid) -> Option<ExitStatus> {
    status_in(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The state is the third field. The status is the last field, the 52nd.
fn status_in(stat: &str) -> Option<ExitStatus> {
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace();
    let status = (fields.next()? == "Z").then(|| fields.nth(48)?.parse().ok())??;
    (status != 0).then(|| ExitStatus::of(status))
}

/// The thread that waits for all watched processes.
#[derive(Debug)]
struct Waiting {
    /// An `epoll(7)`. The number of an event is its pidfd.
    epoll: OwnedFd,
    watched: Mutex<HashMap<u64, Ended>>,
}

/// The process, and where its status is stored.
type Ended = (Pid, Arc<OnceLock<ExitStatus>>);

impl Waiting {
    fn get() -> Option<&'static Self> {
        static ALL: OnceLock<Option<Waiting>> = OnceLock::new();
        static THREAD: OnceLock<bool> = OnceLock::new();
        let waiting = ALL.get_or_init(|| Self::new().ok()).as_ref()?;
        let runs = THREAD
            .get_or_init(|| thread::Builder::new().name("exits".to_owned()).spawn(|| waiting.wait()).is_ok());
        runs.then_some(waiting)
    }

    fn new() -> io::Result<Self> {
        // SAFETY: the call has no precondition.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just created and has no other owner.
        Ok(Self { epoll: unsafe { OwnedFd::from_raw_fd(fd) }, watched: Mutex::default() })
    }

    fn all(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Ended>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, watched: &Watched) {
        let fd = watched.process.as_raw_fd();
        let number = u64::from(fd.unsigned_abs());
        self.all().insert(number, (watched.pid, Arc::clone(&watched.seen)));
        let events = (libc::EPOLLIN | libc::EPOLLONESHOT).cast_unsigned();
        let mut event = libc::epoll_event { events, u64: number };
        // SAFETY: both descriptors are open; the event is read only.
        unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) };
    }

    fn remove(&self, watched: &Watched) {
        let fd = watched.process.as_raw_fd();
        self.all().remove(&u64::from(fd.unsigned_abs()));
        // SAFETY: both descriptors are open; kernels since 2.6.9 read no event here.
        unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_DEL, fd, ptr::null_mut()) };
    }

    fn wait(&self) {
        loop {
            let mut event = libc::epoll_event { events: 0, u64: 0 };
            // SAFETY: there is room for one event.
            let count = unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), &raw mut event, 1, -1) };
            if count < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                return;
            }
            let number = event.u64;
            if count == 1
                && let Some((pid, seen)) = self.all().get(&number).cloned()
                && let Some(status) = of_zombie(pid)
            {
                let _ = seen.set(status);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        process::{Child, Command},
        time::{Duration, Instant},
    };

    use super::*;

    fn ended(script: &str, reap: bool) -> Option<ExitStatus> {
        let mut child: Child =
            Command::new("sh").args(["-c", script]).stdin(std::process::Stdio::piped()).spawn().unwrap();
        let watch = ExitWatch::of(Pid(child.id()));
        assert_eq!(watch.status(), None, "it lives");
        drop(child.stdin.take());
        let deadline = Instant::now() + Duration::from_secs(20);
        if reap {
            child.wait().unwrap();
        }
        let mut status = watch.status();
        while !reap && status.is_none() && Instant::now() < deadline {
            std::thread::yield_now();
            status = watch.status();
        }
        child.wait().unwrap();
        status
    }

    #[test]
    fn an_exit_status_is_readable_until_the_parent_reaps_it() {
        assert_eq!(ended("read x; exit 3", false), Some(ExitStatus::Code(3)));
        assert_eq!(ended("read x; kill -TERM $$", false), Some(ExitStatus::Signal(15)));
    }

    /// Kernels before 6.15 keep no status.
    #[test]
    fn a_kept_exit_status_is_that_of_its_process() {
        assert!(matches!(ended("read x; exit 3", true), None | Some(ExitStatus::Code(3))));
        assert!(matches!(ended("read x; kill -KILL $$", true), None | Some(ExitStatus::Signal(9))));
    }

    #[test]
    fn a_living_or_inaccessible_process_has_no_exit_status() {
        let stat = |state: &str, status: i32| format!("7 (a) Z) {state}{} {status}", " 0".repeat(48));
        assert_eq!(status_in(&stat("Z", 15)), Some(ExitStatus::Signal(15)));
        assert_eq!(status_in(&stat("Z", 139)), Some(ExitStatus::Signal(11)), "with a core");
        assert_eq!(status_in(&stat("Z", 0)), None);
        assert_eq!(status_in(&stat("S", 15)), None);
    }
}
