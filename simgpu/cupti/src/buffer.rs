//! Writes records into the client's buffers, and reads them back.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Mutex;

use simgpu_engine::lock;
use simgpu_engine::trace::Event;

use crate::call::{Error, call, put, version};
use crate::record::{self, size};

pub(crate) type Request = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
pub(crate) type Complete = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Callbacks {
    pub(crate) request: Request,
    pub(crate) complete: Complete,
}

struct Buffer {
    at: *mut u8,
    size: usize,
    used: usize,
    /// How many more records it may hold.
    left: usize,
}

/// Records that a forced flush gave out before the work had ended. Each is written to its place once the work
/// has ended, even if the client has reused the buffer.
static LATE: Mutex<Vec<(usize, usize, Event)>> = Mutex::new(Vec::new());

pub(crate) fn write_late(now: u64) {
    lock(&LATE).retain(|&(at, size, event)| {
        if event.end > now {
            return true;
        }
        // SAFETY: a client keeps its buffers mapped. CUPTI does not document this, but relies on it.
        let bytes = unsafe { std::slice::from_raw_parts_mut(ptr::with_exposed_provenance_mut(at), size) };
        record::write(&event, true, bytes);
        false
    });
}

/// Held by the thread that gives out records.
static DELIVERING: Mutex<()> = Mutex::new(());

/// Gives the client these records, and returns how many did not fit and are lost. Holds no lock that a
/// callback could need.
pub(crate) fn deliver(events: &[(Event, bool)], callbacks: Callbacks) -> usize {
    let _one_at_a_time = lock(&DELIVERING);
    let (mut buffer, mut lost): (Option<Buffer>, usize) = (None, 0);
    for (event, whole) in events {
        let Some(size) = size(record::kind(event), version()) else { continue };
        let is_full = |buffer: &Buffer| buffer.left == 0 || buffer.used + size > buffer.size;
        if let Some(full) = buffer.take_if(|buffer| is_full(buffer)) {
            full.give_back(callbacks);
        }
        if buffer.is_none() {
            buffer = Buffer::ask(callbacks).filter(|buffer| buffer.size >= size);
        }
        let Some(buffer) = &mut buffer else {
            lost += 1;
            continue;
        };
        // SAFETY: the client's buffer has `size` unused bytes here.
        let bytes = unsafe { std::slice::from_raw_parts_mut(buffer.at.add(buffer.used), size) };
        record::write(event, *whole, bytes);
        if !whole {
            lock(&LATE).push((bytes.as_mut_ptr().expose_provenance(), size, *event));
        }
        buffer.used += size;
        buffer.left -= 1;
    }
    if let Some(last) = buffer {
        last.give_back(callbacks);
    }
    lost
}

impl Buffer {
    fn ask(callbacks: Callbacks) -> Option<Self> {
        let (mut at, mut size, mut most) = (ptr::null_mut(), 0, 0);
        // SAFETY: the client promised that its callbacks do as CUPTI documents.
        unsafe { (callbacks.request)(&raw mut at, &raw mut size, &raw mut most) };
        let left = if most == 0 { usize::MAX } else { most };
        (!at.is_null()).then_some(Self { at, size, used: 0, left })
    }

    fn give_back(self, callbacks: Callbacks) {
        // SAFETY: as above; the buffer is the client's.
        unsafe { (callbacks.complete)(ptr::null_mut(), 0, self.at, self.size, self.used) };
    }
}

/// # Safety
/// As CUPTI documents.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuptiActivityGetNextRecord(
    buffer: *mut u8,
    bytes: usize,
    record: *mut *mut u8,
) -> c_int {
    call(|| {
        if buffer.is_null() || record.is_null() {
            return Err(Error::INVALID_PARAMETER);
        }
        // SAFETY: the caller's pointer, which is writable.
        let before = unsafe { *record };
        let next = if before.is_null() {
            buffer
        } else {
            // SAFETY: the record before is one that this library wrote.
            let kind = unsafe { before.cast::<u32>().read_unaligned() };
            // SAFETY: the record has this size.
            unsafe { before.add(size(kind, version()).ok_or(Error::INVALID_KIND)?) }
        };
        if next.addr() >= buffer.addr() + bytes {
            return Err(Error::MAX_LIMIT_REACHED);
        }
        // SAFETY: as above.
        unsafe { put(record, next) }
    })
}
