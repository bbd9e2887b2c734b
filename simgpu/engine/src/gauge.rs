//! What can be observed of a GPU from outside the processes that use it: a page in the machine's folder.
//!
//! The process that uses a device writes its page, and the stand-in management library reads it. A timeline
//! runs ahead of the clock, so the page has the time until which the device is busy, and readers subtract the
//! part in the future.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};

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

/// The page. A new file is all zero, which means a device that was never used.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Page {
    /// The process that uses the device; of several, the last one.
    process: AtomicU32,
    mhz: AtomicU32,
    /// The time in which work ran, up to `busy_until`, in nanoseconds.
    busy: AtomicU64,
    busy_until: AtomicU64,
    /// The number of operations that have begun and wait for another rank.
    waiting: AtomicU64,
    memory: AtomicU64,
}

impl Page {
    /// Counts work from `start` to `end`.
    pub fn ran(&self, start: Moment, end: Moment) {
        let before = self.busy_until.fetch_max(end.ns(), Relaxed);
        self.busy.fetch_add(end.ns().saturating_sub(start.ns().max(before)), Relaxed);
    }

    /// Counts as busy while `wait` runs, which waits for other ranks.
    pub fn while_waiting<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.waiting.fetch_add(1, Relaxed);
        let answer = wait();
        self.waiting.fetch_sub(1, Relaxed);
        answer
    }

    pub fn allocated(&self, bytes: u64) {
        self.memory.fetch_add(bytes, Relaxed);
    }

    pub fn freed(&self, bytes: u64) {
        self.memory.fetch_sub(bytes, Relaxed);
    }

    /// What the device does now; `None` if no process uses it.
    #[must_use]
    pub fn look(&self, now: Moment) -> Option<Look> {
        let process = self.process.load(Relaxed);
        if process == 0 || !std::path::Path::new(&format!("/proc/{process}")).exists() {
            return None;
        }
        let ahead = self.busy_until.load(Relaxed).saturating_sub(now.ns());
        Some(Look {
            process,
            mhz: self.mhz.load(Relaxed),
            busy_ns: self.busy.load(Relaxed).saturating_sub(ahead),
            waits: self.waiting.load(Relaxed) > 0,
            memory: self.memory.load(Relaxed) + CONTEXT_BYTES,
        })
    }
}

/// A device in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    pub process: u32,
    /// The clock at which its process runs it.
    pub mhz: u32,
    /// The time in which it did any work so far.
    pub busy_ns: u64,
    /// Whether an operation waits for other ranks, which counts as busy.
    pub waits: bool,
    pub memory: u64,
}

/// The page of this process's device with this number. The process owns it from its first call on. `None` if
/// the machine has no folder.
#[must_use]
pub fn mine(device: i32) -> Option<&'static Page> {
    static VISIBLE: OnceLock<Option<Vec<u32>>> = OnceLock::new();
    static PAGES: Mutex<Vec<(u32, Option<&'static Page>)>> = Mutex::new(Vec::new());
    let visible = VISIBLE.get_or_init(|| machine::folder().map(|_| machine::visible())).as_ref()?;
    let device = *visible.get(usize::try_from(device).ok()?)?;
    let mut pages = lock(&PAGES);
    if let Some((_, page)) = pages.iter().find(|(known, _)| *known == device) {
        return *page;
    }
    let page = open(device);
    if let Some(page) = page {
        page.begin();
    }
    pages.push((device, page));
    page
}

impl Page {
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
        self.process.store(std::process::id(), Relaxed);
    }
}

fn path(device: u32) -> Option<PathBuf> {
    Some(machine::folder()?.join(format!("gpu-{device}")))
}

/// The page of a device of the machine. Each call maps it, and it is never unmapped.
#[must_use]
pub fn open(device: u32) -> Option<&'static Page> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path(device)?);
    map(&file.ok()?)
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

    fn used() -> Page {
        let page = Page::default();
        page.process.store(std::process::id(), Relaxed);
        page
    }

    #[test]
    fn two_streams_at_the_same_time_are_one_busy_device() {
        let page = used();
        page.ran(Moment::from_ns(100), Moment::from_ns(200));
        page.ran(Moment::from_ns(150), Moment::from_ns(250));
        page.ran(Moment::from_ns(300), Moment::from_ns(310));
        assert_eq!(page.look(Moment::from_ns(400)).unwrap().busy_ns, 160);
    }

    #[test]
    fn future_work_does_not_count_as_past() {
        let page = used();
        page.ran(Moment::from_ns(100), Moment::from_ns(1000));
        assert_eq!(page.look(Moment::from_ns(400)).unwrap().busy_ns, 300);
    }

    #[test]
    fn a_device_whose_process_has_gone_is_not_used() {
        let page = Page::default();
        assert_eq!(page.look(Moment::from_ns(1)), None);
        page.process.store(u32::MAX, Relaxed);
        assert_eq!(page.look(Moment::from_ns(1)), None);
    }
}
