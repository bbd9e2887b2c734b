//! Buffers for CUPTI's records, and what is kept of them.
//!
//! CUPTI requests and returns buffers on its own threads and on the program's. From CUDA 13 on, each
//! launching thread has a buffer. No lock is held here during a call to CUPTI, because CUPTI may hold its own
//! lock when it requests a buffer.
//!
//! A buffer is never unmapped: after a forced flush, CUPTI may still write to it when the GPU ends its work,
//! or when a recorded call returns. The buffer's memory is released when the next recording begins, or when
//! the hook's thread finds it long unused.

use std::{
    collections::BTreeMap,
    ffi::{c_char, c_void},
    panic::catch_unwind,
    ptr,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{
            AtomicBool, AtomicPtr, AtomicU8, AtomicUsize,
            Ordering::{AcqRel, Acquire, Relaxed, Release},
        },
    },
};

use super::{
    SUCCESS, cuptiActivityGetNextRecord,
    record::{self, Record},
};
use crate::process::peek::peek;

/// Bytes of a buffer, and the number of buffers that CUPTI has at once.
const BUFFER: usize = 256 << 10;
const BUFFERS: usize = 32;

/// Maximum number of buffers, if CUPTI does not accept a refusal.
const PLACES: usize = 8 * BUFFERS;

/// Maximum number of GPU records kept of one capture.
const RAN: usize = 64 << 10;

/// Maximum number of bytes of all names, and of one name.
const NAMES: usize = 1 << 20;
const NAME: usize = 16 << 10;

/// The smallest page size, and the size of one read.
const PAGE: usize = 4096;
const PIECE: usize = 256;

/// Records copied at once.
const CHUNK: usize = 64;

/// The addresses of all buffers, and the state of each.
static ADDRESSES: [AtomicPtr<u8>; PLACES] = [const { AtomicPtr::new(ptr::null_mut()) }; PLACES];
static STATES: [AtomicU8; PLACES] = [const { AtomicU8::new(FREE) }; PLACES];
const FREE: u8 = 0;
const GIVEN: u8 = 1;
/// Free, but still with memory.
const USED: u8 = 2;

/// Buffers with memory.
static HELD: AtomicUsize = AtomicUsize::new(0);
/// Whether CUPTI accepts a refusal: before CUDA 12.9 (version 27), CUPTI may crash on one.
static MAY_REFUSE: AtomicBool = AtomicBool::new(false);
static RECORDS: Mutex<Records> = Mutex::new(Records::new());

/// A kernel that the GPU ran, with the index of its name. Times are CUPTI's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) stream: u32,
    pub(crate) correlation: u32,
    pub(crate) name: u32,
}

#[derive(Debug)]
pub(crate) struct Records {
    wanted: bool,
    pub(crate) ran: Vec<Ran>,
    names: BTreeMap<Box<[u8]>, u32>,
    /// Indices of names by their address: CUPTI keeps each name once.
    known: BTreeMap<usize, u32>,
    name_bytes: usize,
    /// The launching calls of unfinished records, whose times are unknown.
    pub(crate) unfinished: Vec<u32>,
    /// GPU records that did not fit.
    pub(crate) dropped: u64,
}

impl Records {
    pub(crate) const fn new() -> Self {
        Self {
            wanted: false,
            ran: Vec::new(),
            names: BTreeMap::new(),
            known: BTreeMap::new(),
            name_bytes: 0,
            unfinished: Vec::new(),
            dropped: 0,
        }
    }

    /// The names in index order.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names = vec![String::new(); self.names.len()];
        for (name, &place) in &self.names {
            names[place as usize] = String::from_utf8_lossy(name).into_owned();
        }
        names
    }

    fn take(&mut self, Record { begin, end, stream, correlation, name }: Record) {
        let is_kept = if begin == 0 || end < begin {
            // The name of an unfinished record may not be there yet.
            push(&mut self.unfinished, correlation)
        } else {
            self.ran.len() < RAN
                && self
                    .name(name)
                    .is_some_and(|name| push(&mut self.ran, Ran { begin, end, stream, correlation, name }))
        };
        self.dropped += u64::from(!is_kept);
    }

    fn name(&mut self, at: *const c_char) -> Option<u32> {
        if let Some(&place) = self.known.get(&at.addr()) {
            return Some(place);
        }
        let name = text(at.expose_provenance())?;
        let place = match self.names.get(&name[..]) {
            Some(&place) => place,
            None if self.name_bytes + name.len() > NAMES => return None,
            None => {
                self.name_bytes += name.len();
                let place = self.names.len() as u32;
                self.names.insert(name.into(), place);
                place
            }
        };
        self.known.insert(at.addr(), place);
        Some(place)
    }

    fn memory(&self) -> usize {
        self.ran.capacity() * size_of::<Ran>()
            + self.unfinished.capacity() * size_of::<u32>()
            + self.name_bytes
    }
}

/// Returns whether it fitted.
fn push<T>(all: &mut Vec<T>, one: T) -> bool {
    let has_room = all.len() < RAN && all.try_reserve(1).is_ok();
    if has_room {
        all.push(one);
    }
    has_room
}

/// A copy of the C string at this address; `None` if it is unreadable or longer than [`NAME`]. The kernel
/// reads it, because a bad record must not crash the program.
fn text(at: usize) -> Option<Vec<u8>> {
    let (mut text, mut piece) = (Vec::new(), [0; PIECE]);
    while text.len() <= NAME {
        let from = at.checked_add(text.len())?;
        // Each read stays within a page, because the next page may be unreadable.
        let wanted = PIECE.min(PAGE - from % PAGE);
        let count = peek(from, &mut piece[..wanted]);
        let read = &piece[..count];
        let end = read.iter().position(|&byte| byte == 0);
        text.try_reserve(read.len()).ok()?;
        text.extend_from_slice(&read[..end.unwrap_or(read.len())]);
        if end.is_some() {
            return (text.len() <= NAME).then_some(text);
        }
        if read.is_empty() {
            return None;
        }
    }
    None
}

/// Begins to keep records. `None` if another thread held the lock when this process was forked.
pub(super) fn begin(version: u32) -> Option<()> {
    let mut records = RECORDS.try_lock().ok()?;
    *records = Records { wanted: true, ..Records::new() };
    MAY_REFUSE.store(version >= 27, Relaxed);
    release_memory();
    Some(())
}

/// Releases the memory of buffers that CUPTI does not have. Called only long after CUPTI returned them.
pub(super) fn release_memory() {
    for (address, state) in ADDRESSES.iter().zip(&STATES) {
        if state.compare_exchange(USED, GIVEN, AcqRel, Relaxed).is_ok() {
            // SAFETY: a mapping of `make`, which stays mapped; nobody reads what is written to it later.
            unsafe { libc::madvise(address.load(Acquire).cast(), BUFFER, libc::MADV_DONTNEED) };
            HELD.fetch_sub(1, Relaxed);
            state.store(FREE, Release);
        }
    }
}

/// Takes the received records; later ones are dropped.
pub(super) fn end() -> Records {
    std::mem::replace(&mut *records(), Records::new())
}

pub(super) fn records() -> MutexGuard<'static, Records> {
    RECORDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Approximate number of bytes held now.
pub(crate) fn memory() -> usize {
    HELD.load(Relaxed) * BUFFER + RECORDS.try_lock().map_or(0, |records| records.memory())
}

/// Gives CUPTI a buffer.
///
/// # Safety
/// As CUPTI documents for this callback.
pub(super) unsafe extern "C" fn requested(buffer: *mut *mut u8, size: *mut usize, most: *mut usize) {
    let given = give();
    // SAFETY: CUPTI passes three writable places.
    unsafe {
        *buffer = given;
        *size = if given.is_null() { 0 } else { BUFFER };
        *most = 0;
    }
}

fn give() -> *mut u8 {
    let places = if MAY_REFUSE.load(Relaxed) { BUFFERS } else { PLACES };
    for (address, state) in ADDRESSES.iter().zip(&STATES).take(places) {
        let used = state.compare_exchange(USED, GIVEN, AcqRel, Relaxed).is_ok();
        if !used && state.compare_exchange(FREE, GIVEN, AcqRel, Relaxed).is_err() {
            continue;
        }
        let mut at = address.load(Acquire);
        if at.is_null() {
            at = make();
            address.store(at, Release);
        }
        if at.is_null() {
            state.store(FREE, Release);
        } else if !used {
            HELD.fetch_add(1, Relaxed);
        }
        return at;
    }
    ptr::null_mut()
}

fn make() -> *mut u8 {
    // SAFETY: a new mapping at an address the kernel chooses touches nothing.
    let at = unsafe {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        libc::mmap(ptr::null_mut(), BUFFER, access, flags, -1, 0)
    };
    if at == libc::MAP_FAILED { ptr::null_mut() } else { at.cast() }
}

/// Takes a buffer back from CUPTI, and copies its records.
///
/// # Safety
/// As CUPTI documents for this callback.
pub(super) unsafe extern "C" fn completed(_: *mut c_void, _: u32, buffer: *mut u8, _: usize, valid: usize) {
    // A buffer of another user of CUPTI, or one that was returned before, is not read.
    let place = ADDRESSES.iter().position(|at| !buffer.is_null() && at.load(Acquire) == buffer);
    let Some(place) = place.filter(|&place| STATES[place].load(Acquire) == GIVEN) else { return };
    if catch_unwind(|| take(buffer, valid.min(BUFFER))).is_err() {
        crate::process::switch::panicked();
    }
    STATES[place].store(USED, Release);
}

fn take(buffer: *mut u8, valid: usize) {
    let mut at = ptr::null_mut();
    let mut chunk = [None; CHUNK];
    loop {
        let mut count = 0;
        while count < CHUNK {
            // SAFETY: CUPTI passed this buffer with this many valid bytes; `at` is the previous record.
            let rc = unsafe { cuptiActivityGetNextRecord(buffer, valid, &raw mut at) };
            if rc != Some(SUCCESS) || at.is_null() {
                break;
            }
            // A record that is not within the buffer is invalid.
            let left = at.addr().checked_sub(buffer.addr()).map_or(0, |before| valid.saturating_sub(before));
            // SAFETY: this many bytes are left of the buffer, which is the hook's and is never unmapped.
            chunk[count] = unsafe { record::read(at, left) };
            count += 1;
        }
        if count == 0 {
            return;
        }
        let mut records = records();
        if records.wanted {
            chunk[..count].iter().flatten().for_each(|&record| records.take(record));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    #[test]
    fn an_invalid_name_is_not_read() {
        assert_eq!(text(c"_Z1fv".as_ptr().expose_provenance()), Some(b"_Z1fv".to_vec()));
        for wild in [0, 1, 0xffff_ffff_ffff_fff0, 0x5555_0000_0000_0000] {
            assert_eq!(text(wild), None, "{wild:#x}");
        }
        // Up to the end of the mapping.
        let at = make();
        // SAFETY: a mapping of that length.
        unsafe { libc::munmap(at.add(2 * PAGE).cast(), BUFFER - 2 * PAGE) };
        // SAFETY: within what is left.
        unsafe { at.add(PAGE - 3).write_bytes(b'x', PAGE + 3) };
        // SAFETY: as above.
        let inside = unsafe { at.add(PAGE - 3) }.expose_provenance();
        assert_eq!(text(inside), None);
        // SAFETY: as above.
        unsafe { at.add(PAGE + 1).write(0) };
        assert_eq!(text(inside), Some(b"xxxx".to_vec()));
        // A page that is mapped but unreadable.
        // SAFETY: the second page of what is left; nobody has a reference into it.
        unsafe { libc::mprotect(at.add(PAGE).cast(), PAGE, libc::PROT_NONE) };
        assert_eq!(text(inside), None);
    }

    #[test]
    fn names_have_a_maximum_length() {
        for (length, is_read) in [(NAME, true), (NAME + 1, false)] {
            let name = std::ffi::CString::new(vec![b'x'; length]).unwrap();
            assert_eq!(text(name.as_ptr().expose_provenance()).is_some(), is_read, "{length}");
        }
    }

    #[test]
    fn records_without_room_are_counted_and_records_without_times_are_known() {
        let mut records = Records::new();
        let names = [c"one", c"two", c"one"];
        let ran =
            |name: &CStr, begin, end| Record { begin, end, stream: 7, correlation: 9, name: name.as_ptr() };
        for name in names {
            records.take(ran(name, 1, 2));
        }
        records.take(ran(c"one", 0, 0));
        let long = std::ffi::CString::new(vec![b'x'; NAME + 1]).unwrap();
        records.take(ran(&long, 1, 2));
        assert_eq!((records.ran.len(), &records.unfinished[..], records.dropped), (3, &[9][..], 1));
        assert_eq!(records.names(), ["one", "two"]);
        assert_eq!(records.ran[2].name, 0);
        for _ in 0..RAN {
            records.take(ran(c"two", 1, 2));
        }
        assert_eq!((records.ran.len(), records.dropped), (RAN, 4));
    }

    #[test]
    fn buffers_are_bounded_if_cupti_permits_and_never_unmapped() {
        MAY_REFUSE.store(true, Relaxed);
        let given: Vec<_> = (0..BUFFERS).map(|_| give()).collect();
        assert!(given.iter().all(|buffer| !buffer.is_null()) && give().is_null());
        MAY_REFUSE.store(false, Relaxed);
        let more = give();
        assert!(!more.is_null());
        let mut others = [0_u8; 64];
        // SAFETY: the hook does not own this buffer, so nothing of it is read.
        unsafe { completed(ptr::null_mut(), 0, others.as_mut_ptr(), 64, 64) };
        for buffer in given.into_iter().chain([more]) {
            // SAFETY: a buffer of `give` without a record in it.
            unsafe { completed(ptr::null_mut(), 0, buffer, BUFFER, 0) };
            // SAFETY: it is still there.
            unsafe { buffer.write(1) };
        }
        assert_eq!(HELD.load(Relaxed), BUFFERS + 1);
        release_memory();
        assert_eq!(HELD.load(Relaxed), 0);
        // SAFETY: as above.
        unsafe { more.write(1) };
        assert_eq!(give(), ADDRESSES[0].load(Relaxed), "it is used again");
    }
}
