//! What can be observed of a GPU from outside the processes that use it: a page in the machine's folder.
//!
//! The processes that use a device write its page, each in its own place, and the stand-in management library
//! reads it. A timeline runs ahead of the clock, so the page has the time until which the device is busy, and
//! readers subtract the part in the future. By the same times, each process knows when it shares the device.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use crate::clock::Moment;
use crate::lock;
use crate::machine;
use crate::settings;

/// The highest clock of every simulated GPU, in MHz.
pub const HIGHEST_MHZ: f64 = 1980.0;

/// The memory of each GPU in bytes, that of an H200.
pub const MEMORY: u64 = 150_754_820_096;

/// The memory that a process takes on a device before it allocates any.
pub const CONTEXT_BYTES: u64 = 512 << 20;

/// How many processes share a device.
const USERS: usize = 8;

/// The time between the end of a kernel and the launch of the next one, in a process that waits for each: it has work
/// without a pause. In nanoseconds.
const LAUNCH: u64 = 100_000;

/// The page. A new file is all zero, which means a device that was never used.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Page {
    /// The time in which work of any process ran, up to `busy_until`, in nanoseconds.
    busy: AtomicU64,
    busy_until: AtomicU64,
    users: [User; USERS],
}

/// What one process does on the device.
#[repr(C)]
#[derive(Debug, Default)]
struct User {
    /// Zero if no process has this place.
    process: AtomicU32,
    mhz: AtomicU32,
    /// The time that its work took without the time slices of other processes, in nanoseconds.
    busy: AtomicU64,
    busy_until: AtomicU64,
    /// The number of operations that have begun and wait for another rank.
    waiting: AtomicU64,
    memory: AtomicU64,
}

impl User {
    fn is_alive(&self) -> bool {
        let process = self.process.load(Relaxed);
        process != 0 && std::path::Path::new(&format!("/proc/{process}")).exists()
    }

    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a clock of some thousand MHz"
    )]
    fn begin(&self) {
        for count in [&self.busy, &self.busy_until, &self.waiting, &self.memory] {
            count.store(0, Relaxed);
        }
        self.mhz.store(settings::CLOCK_MHZ.read() as u32, Relaxed);
    }
}

/// This process's place on a page.
#[derive(Clone, Copy, Debug)]
pub struct UserSlot {
    page: &'static Page,
    user: &'static User,
}

impl UserSlot {
    /// The time that a kernel takes which needs `alone` for itself. Each process that has work now is taken to have work
    /// until the kernel ends, and each has its time slice in turn, as on a real GPU without MPS.
    #[must_use]
    pub fn shared(self, now: Moment, alone: Duration) -> Duration {
        let now = now.ns();
        let works = |user: &&User| {
            !ptr::eq(*user, self.user) && user.busy_until.load(Relaxed).saturating_add(LAUNCH) > now
        };
        let others = self.page.users.iter().filter(works).count();
        alone.saturating_mul(u32::try_from(others).unwrap_or(0) + 1)
    }

    /// Counts work from `start` to `end`, which would have taken `alone` without other processes.
    pub fn ran(self, start: Moment, end: Moment, alone: Duration) {
        let before = self.page.busy_until.fetch_max(end.ns(), Relaxed);
        self.page.busy.fetch_add(end.ns().saturating_sub(start.ns().max(before)), Relaxed);
        self.user.busy_until.fetch_max(end.ns(), Relaxed);
        self.user.busy.fetch_add(u64::try_from(alone.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    /// Counts as busy while `wait` runs, which waits for other ranks.
    pub fn while_waiting<T>(self, wait: impl FnOnce() -> T) -> T {
        self.user.waiting.fetch_add(1, Relaxed);
        let answer = wait();
        self.user.waiting.fetch_sub(1, Relaxed);
        answer
    }

    pub fn allocated(self, bytes: u64) {
        self.user.memory.fetch_add(bytes, Relaxed);
    }

    pub fn freed(self, bytes: u64) {
        self.user.memory.fetch_sub(bytes, Relaxed);
    }
}

impl Page {
    fn users(&self) -> impl Iterator<Item = &User> {
        self.users.iter().filter(|user| user.is_alive())
    }

    /// What the device does now; `None` if no process uses it.
    #[must_use]
    pub fn look(&self, now: Moment) -> Option<Look> {
        let processes = self.processes(now);
        let ahead = self.busy_until.load(Relaxed).saturating_sub(now.ns());
        Some(Look {
            mhz: self.users().map(|user| user.mhz.load(Relaxed)).min()?,
            busy_ns: self.busy.load(Relaxed).saturating_sub(ahead),
            waits: self.users().any(|user| user.waiting.load(Relaxed) > 0),
            memory: processes.iter().map(|process| process.memory).sum(),
        })
    }

    /// The processes that use the device.
    #[must_use]
    pub fn processes(&self, now: Moment) -> Vec<Process> {
        let look = |user: &User| Process {
            pid: user.process.load(Relaxed),
            busy_ns: user
                .busy
                .load(Relaxed)
                .saturating_sub(user.busy_until.load(Relaxed).saturating_sub(now.ns())),
            waits: user.waiting.load(Relaxed) > 0,
            memory: user.memory.load(Relaxed) + CONTEXT_BYTES,
        };
        self.users().map(look).collect()
    }

    /// Gives this process a place; `None` if all are taken.
    fn join(&'static self) -> Option<UserSlot> {
        if self.users().next().is_none() {
            self.busy.store(0, Relaxed);
            self.busy_until.store(0, Relaxed);
        }
        let own = std::process::id();
        let user = self.users.iter().find(|user| {
            let process = user.process.load(Relaxed);
            let is_free = process == own || !user.is_alive();
            is_free && user.process.compare_exchange(process, own, Relaxed, Relaxed).is_ok()
        })?;
        user.begin();
        Some(UserSlot { page: self, user })
    }
}

/// A device in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// The lowest clock at which one of its processes runs it.
    pub mhz: u32,
    /// The time in which it did any work so far.
    pub busy_ns: u64,
    /// Whether an operation waits for other ranks, which counts as busy.
    pub waits: bool,
    pub memory: u64,
}

/// A process that uses a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    pub pid: u32,
    /// The time that its work took so far.
    pub busy_ns: u64,
    pub waits: bool,
    pub memory: u64,
}

/// The place of this process on the page of its device with this number, from its first call on. `None` if the
/// machine has no folder.
#[must_use]
pub fn mine(device: i32) -> Option<UserSlot> {
    static VISIBLE: OnceLock<Option<Vec<u32>>> = OnceLock::new();
    static PLACES: Mutex<Vec<(u32, Option<UserSlot>)>> = Mutex::new(Vec::new());
    let visible = VISIBLE.get_or_init(|| machine::folder().map(|_| machine::visible())).as_ref()?;
    let device = *visible.get(usize::try_from(device).ok()?)?;
    let mut places = lock(&PLACES);
    if let Some((_, place)) = places.iter().find(|(known, _)| *known == device) {
        return *place;
    }
    let place = open(device).and_then(Page::join);
    places.push((device, place));
    place
}

fn path(device: u32) -> Option<PathBuf> {
    Some(machine::folder()?.join(format!("gpu-{device}")))
}

/// The page of a device of the machine.
#[must_use]
pub fn open(device: u32) -> Option<&'static Page> {
    static PAGES: Mutex<Vec<(u32, &'static Page)>> = Mutex::new(Vec::new());
    let mut pages = lock(&PAGES);
    if let Some((_, page)) = pages.iter().find(|(known, _)| *known == device) {
        return Some(page);
    }
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path(device)?);
    let page = map(&file.ok()?)?;
    pages.push((device, page));
    Some(page)
}

fn map(file: &File) -> Option<&'static Page> {
    let length = size_of::<Page>();
    file.set_len(length as u64).ok()?;
    // SAFETY: a new mapping of a file that is long enough; nothing else is at its address.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    let at = NonNull::new(at).filter(|at| at.as_ptr() != libc::MAP_FAILED)?;
    // SAFETY: aligned to a page, long enough, never unmapped, and accessed only as atomics, which may have
    // any bits.
    Some(unsafe { at.cast::<Page>().as_ref() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A page, and the places of two processes on it. The second is this process's parent.
    fn shared() -> (&'static Page, UserSlot, UserSlot) {
        let page: &Page = Box::leak(Box::default());
        let one = page.join().unwrap();
        let user = &page.users[1];
        user.process.store(std::os::unix::process::parent_id(), Relaxed);
        (page, one, UserSlot { page, user })
    }

    fn at(ns: u64) -> Moment {
        Moment::from_ns(ns)
    }

    /// Runs a kernel that is launched at `start`, and returns its end.
    fn run(place: UserSlot, start: u64, alone: u64) -> u64 {
        let alone = Duration::from_nanos(alone);
        let end = at(start).after(place.shared(at(start), alone));
        place.ran(at(start), end, alone);
        end.ns()
    }

    #[test]
    fn two_streams_at_the_same_time_are_one_busy_device() {
        let (page, one, _) = shared();
        let ends = [run(one, 100 * MS, 100 * MS), run(one, 150 * MS, 100 * MS), run(one, 300 * MS, 10 * MS)];
        assert_eq!(ends, [200 * MS, 250 * MS, 310 * MS]);
        assert_eq!(page.look(at(400 * MS)).unwrap().busy_ns, 160 * MS);
    }

    #[test]
    fn future_work_does_not_count_as_past() {
        let (page, one, _) = shared();
        run(one, 100 * MS, 900 * MS);
        assert_eq!(page.look(at(400 * MS)).unwrap().busy_ns, 300 * MS);
    }

    /// A kernel takes twice as long while another process has work, and then its usual time.
    #[test]
    fn two_processes_share_the_device_in_time_slices() {
        let (page, one, other) = shared();
        assert_eq!([run(one, 10 * MS, 10 * MS), run(other, 12 * MS, 4 * MS)], [20 * MS, 20 * MS]);
        assert_eq!(run(one, 20 * MS, 10 * MS), 40 * MS, "the other launches again");
        assert_eq!(run(one, 50 * MS, 10 * MS), 60 * MS);
        assert_eq!(page.look(at(99 * MS)).unwrap().busy_ns, 40 * MS);
        let processes = page.processes(at(99 * MS));
        let busy: Vec<_> = processes.iter().map(|process| (process.pid, process.busy_ns)).collect();
        assert_eq!(busy, [(std::process::id(), 30 * MS), (std::os::unix::process::parent_id(), 4 * MS)]);
    }

    #[test]
    fn a_device_whose_processes_have_gone_is_not_used() {
        let page: &Page = Box::leak(Box::default());
        assert_eq!(page.look(at(1)), None);
        page.users[0].process.store(u32::MAX, Relaxed);
        assert_eq!(page.look(at(1)), None);
        assert!(page.join().is_some_and(|mine| ptr::eq(mine.user, &raw const page.users[0])));
    }
}
