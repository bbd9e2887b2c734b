//! The memory pages of a ledger: created by the hook, mapped by the collector.

use std::{
    ffi::c_int,
    fs::File,
    io,
    os::{
        fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
        unix::fs::OpenOptionsExt as _,
    },
    ptr::NonNull,
    sync::atomic::Ordering::Relaxed,
};

use super::{Ledger, MAGIC};
use crate::id::Pid;

/// The page's size can never change: reading beyond the end of a truncated page raises SIGBUS.
const SEALS: c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// A mapping of a ledger page.
#[derive(Debug)]
pub struct LedgerPage {
    at: NonNull<Ledger>,
    /// The writer keeps it open, so that others can find the pages.
    file: Option<OwnedFd>,
}

// SAFETY: the mapping is plain memory of atomics; any thread may touch and unmap it.
unsafe impl Send for LedgerPage {}
// SAFETY: all access through a shared reference is by atomics.
unsafe impl Sync for LedgerPage {}

/// The lowest descriptor number used here. Programs rely on small ones: standard input and output, or the
/// lowest free one.
const SMALLEST: libc::c_int = 512;

/// The same file under a high descriptor number, if the limit allows one.
pub fn out_of_the_way(file: OwnedFd) -> OwnedFd {
    // SAFETY: the descriptor is open.
    let high = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, SMALLEST) };
    // SAFETY: it was just made and has no other owner.
    if high < 0 { file } else { unsafe { OwnedFd::from_raw_fd(high) } }
}

impl LedgerPage {
    /// A new page for this process.
    pub fn create() -> io::Result<Self> {
        // SAFETY: the name is NUL-terminated and 'static.
        let fd = unsafe {
            libc::memfd_create(c"xpu-top-ledger".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: fd was just made and has no other owner.
        let file = out_of_the_way(unsafe { OwnedFd::from_raw_fd(fd) });
        let fd = file.as_raw_fd();
        // SAFETY: fd is an open memfd.
        if unsafe { libc::ftruncate(fd, size_of::<Ledger>() as libc::off_t) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: fd is an open memfd that allows seals.
        if unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, SEALS) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let page = Self { at: map(fd, libc::PROT_READ | libc::PROT_WRITE)?, file: Some(file) };
        page.ledger().pid.store(u64::from(std::process::id()), Relaxed);
        page.ledger().magic.store(MAGIC, Relaxed);
        Ok(page)
    }

    /// The page of process `pid`, at its descriptor `fd`.
    pub fn open(pid: Pid, fd: u32) -> io::Result<Self> {
        let path = format!("/proc/{pid}/fd/{fd}");
        let foreign = || io::Error::new(io::ErrorKind::InvalidData, "not a ledger of this version");
        // Checked before it is opened: opening a pipe with the same descriptor number would block.
        if !std::fs::read_link(&path)?.to_string_lossy().starts_with("/memfd:xpu-top-ledger") {
            return Err(foreign());
        }
        let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&path)?;
        // SAFETY: the descriptor is open for the length of the call, which changes nothing.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) } & SEALS != SEALS {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a ledger that is not sealed could be cut short",
            ));
        }
        if file.metadata()?.len() != size_of::<Ledger>() as u64 {
            return Err(foreign());
        }
        let page = Self { at: map(file.as_raw_fd(), libc::PROT_READ)?, file: None };
        let ledger = page.ledger();
        if ledger.magic.load(Relaxed) != MAGIC {
            return Err(foreign());
        }
        Ok(page)
    }

    pub fn ledger(&self) -> &Ledger {
        // SAFETY: `at` points to a live mapping of the size of a Ledger until drop; every bit pattern is a
        // valid Ledger.
        unsafe { self.at.as_ref() }
    }

    /// The descriptor others can open; `None` for a page of another process.
    pub fn descriptor(&self) -> Option<c_int> {
        self.file.as_ref().map(std::os::fd::AsRawFd::as_raw_fd)
    }
}

impl Drop for LedgerPage {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this size, and only this code unmaps it.
        unsafe { libc::munmap(self.at.as_ptr().cast(), size_of::<Ledger>()) };
    }
}

fn map(fd: c_int, protection: c_int) -> io::Result<NonNull<Ledger>> {
    let length = size_of::<Ledger>();
    // SAFETY: a fresh shared mapping of an open file; the kernel picks the address.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, libc::MAP_SHARED, fd, 0) };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(at.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Call, KinetoCount, ThreadReading, Writers},
        *,
    };
    use crate::{
        collective::Operation,
        id::{CommunicatorId, Step},
        unit::Moment,
    };

    #[test]
    fn a_reader_sees_what_the_writer_stored() {
        let written = LedgerPage::create().unwrap();
        let seen = LedgerPage::open(Pid(std::process::id()), written.descriptor().unwrap() as u32).unwrap();
        let ledger = written.ledger();
        ledger.step(Step(7), Moment(70));
        assert_eq!(ledger.kineto_count(), None);
        ledger.kineto(KinetoCount { step: Step(7), counted: 14 });
        assert!(ledger.communicators[3].open(CommunicatorId(0xabc), 2, 8));
        assert!(!ledger.communicators[3].open(CommunicatorId(0xdef), 2, 8));
        let line = &ledger.communicators[3];
        line.enter(CommunicatorId(0xabc), 2, Operation::AllReduce, 1 << 26, Moment(80), Writers::One);
        line.enqueue(CommunicatorId(0xabc), 2, Writers::Many);
        line.complete(CommunicatorId(0xabc), 0);
        line.complete(CommunicatorId(0xdef), 1);
        assert!(ledger.threads[0].claim(42));
        assert!(!ledger.threads[0].claim(43));
        ledger.threads[0].enter(Call::GroupEnd, Moment(90));
        let reading = seen.ledger().read();
        assert_eq!(reading.step, Step(7));
        assert_eq!(seen.ledger().kineto_count(), Some(KinetoCount { step: Step(7), counted: 14 }));
        let line = &reading.communicators[0];
        assert_eq!((line.entered, line.enqueued, line.completed), (2, 2, 1));
        assert_eq!((line.last_operation, line.last_bytes), (Some(Operation::AllReduce), 1 << 26));
        assert_eq!((line.rank, line.size), (2, 8));
        assert_eq!(reading.threads, [ThreadReading { thread: 42, call: Call::GroupEnd, since: Moment(90) }]);
        ledger.threads[0].leave();
        assert_eq!(seen.ledger().read().threads, []);
    }

    #[test]
    fn a_foreign_file_is_not_read_as_a_ledger() {
        let file = File::open("/proc/self/exe").unwrap();
        assert!(LedgerPage::open(Pid(std::process::id()), file.as_raw_fd() as u32).is_err());
    }

    /// A page that its worker could truncate would kill its reader.
    #[test]
    fn a_page_that_can_be_truncated_is_refused() {
        // SAFETY: the name is NUL-terminated and 'static.
        let fd = unsafe {
            libc::memfd_create(c"xpu-top-ledger".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)
        };
        // SAFETY: fd was just made and has no other owner.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        let mut bytes = vec![0; size_of::<Ledger>()];
        bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
        std::io::Write::write_all(&mut &file, &bytes).unwrap();
        let refused = LedgerPage::open(Pid(std::process::id()), fd as u32).unwrap_err().to_string();
        assert!(refused.contains("sealed"), "{refused}");
        let page = LedgerPage::create().unwrap();
        // SAFETY: the page's descriptor is open.
        assert_eq!(unsafe { libc::ftruncate(page.descriptor().unwrap(), 0) }, -1);
    }

    /// A page of another version has another layout.
    #[test]
    fn a_page_of_another_version_is_not_read() {
        let page = LedgerPage::create().unwrap();
        let open = || LedgerPage::open(Pid(std::process::id()), page.descriptor().unwrap() as u32);
        assert!(open().is_ok());
        for version in [MAGIC - (1 << 56), MAGIC + (1 << 56)] {
            page.ledger().magic.store(version, Relaxed);
            let refused = open().unwrap_err().to_string();
            assert!(refused.contains("not a ledger of this version"), "{refused}");
        }
    }

    #[test]
    fn the_page_is_small() {
        assert!(std::mem::offset_of!(Ledger, record) <= 8192);
        // Calls, and the end of a process, write the rest. Until then it is not allocated.
        assert!(size_of::<Ledger>() <= 536 << 10);
    }
}
