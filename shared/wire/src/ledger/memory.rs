//! GPU memory by the call site that allocated it. It outlives the process, so that the report of a rank that
//! ran out of memory can name what grew.

use super::{
    record::{NativeText, SiteText},
    sync::{Acquire, AtomicU64, Relaxed, Release},
};
use crate::id::Step;

/// Largest number of sites. Memory of further ones belongs to no site.
pub const MEMORY_SITES: usize = 96;

/// Smallest allocation that belongs to a site. A program may make millions of smaller ones, and a caching
/// allocator asks CUDA for at least this much.
pub const LARGE: u64 = 1 << 20;

/// Number of slots that are probed.
const TRIES: usize = 8;

#[repr(C)]
#[derive(Debug)]
pub struct MemorySites([Line; MEMORY_SITES]);

#[repr(C)]
#[derive(Debug)]
struct Line {
    /// The hash of the Python frames and the native return address; 0 while it is free.
    key: AtomicU64,
    /// Whether the texts have been written.
    written: AtomicU64,
    /// Bytes allocated there and not freed.
    held: AtomicU64,
    allocations: AtomicU64,
    /// Steps completed at the first and at the last allocation.
    first_step: AtomicU64,
    last_step: AtomicU64,
    returns_to: AtomicU64,
    python: SiteText,
    native: NativeText,
}

/// Where an allocation was made.
#[derive(Clone, Copy, Debug)]
pub struct Allocating {
    /// The hash of the thread's Python frames; 0 outside of Python.
    pub frames: u64,
    pub returns_to: usize,
    pub step: Step,
}

impl MemorySites {
    /// Counts an allocation. Returns the number of the site, from 1 on; 0 if the table is full. `describe`
    /// writes the texts of a new site: Python frames and native code.
    pub fn allocated(&self, bytes: u64, at: Allocating, describe: impl FnOnce(&SiteText, &NativeText)) -> u8 {
        let key = at.frames.rotate_left(17) ^ at.returns_to as u64;
        let Some(place) = self.place(key, at, describe) else { return 0 };
        let line = &self.0[place];
        line.held.fetch_add(bytes, Relaxed);
        line.allocations.fetch_add(1, Relaxed);
        line.last_step.store(at.step.0, Relaxed);
        place as u8 + 1
    }

    /// Subtracts freed memory of this site.
    pub fn freed(&self, number: u8, bytes: u64) {
        if let Some(line) = usize::from(number).checked_sub(1).and_then(|place| self.0.get(place)) {
            line.held.fetch_sub(bytes, Relaxed);
        }
    }

    fn place(
        &self,
        key: u64,
        at: Allocating,
        describe: impl FnOnce(&SiteText, &NativeText),
    ) -> Option<usize> {
        if key == 0 {
            return None;
        }
        // Return addresses differ little in their lowest and highest bits.
        let first = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
        for next in 0..TRIES {
            let place = (first + next) % MEMORY_SITES;
            let line = &self.0[place];
            match line.key.compare_exchange(0, key, Relaxed, Relaxed) {
                Ok(_) => {
                    line.first_step.store(at.step.0, Relaxed);
                    line.returns_to.store(at.returns_to as u64, Relaxed);
                    describe(&line.python, &line.native);
                    line.written.store(1, Release);
                    return Some(place);
                }
                Err(found) if found == key => return Some(place),
                Err(_) => {}
            }
        }
        None
    }

    /// The sites that hold memory.
    pub fn read(&self) -> Vec<MemorySiteReading> {
        self.0.iter().zip(1..).filter_map(|(line, number)| line.read(number)).collect()
    }
}

impl Line {
    fn read(&self, number: u8) -> Option<MemorySiteReading> {
        // A thread may free memory before the allocating thread has counted it.
        let held = self.held.load(Relaxed).cast_signed();
        if self.written.load(Acquire) == 0 || held <= 0 {
            return None;
        }
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Some(MemorySiteReading {
            number,
            held: held.cast_unsigned(),
            allocations: self.allocations.load(Relaxed),
            first_step: Step(self.first_step.load(Relaxed)),
            last_step: Step(self.last_step.load(Relaxed)),
            returns_to: self.returns_to.load(Relaxed),
            python: text(self.python.read()),
            native: text(self.native.read()),
        })
    }
}

/// A call site, and the memory that was allocated there and not freed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemorySiteReading {
    pub number: u8,
    pub held: u64,
    /// All allocations so far.
    pub allocations: u64,
    pub first_step: Step,
    pub last_step: Step,
    pub returns_to: u64,
    /// Same as [`super::SiteReading::text`].
    pub python: String,
    pub native: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sites() -> Box<MemorySites> {
        // SAFETY: it consists of atomic words, for which zero is a valid value.
        unsafe { Box::<MemorySites>::new_zeroed().assume_init() }
    }

    fn at(frames: u64, step: u64) -> Allocating {
        Allocating { frames, returns_to: 0x7f00_0010, step: Step(step) }
    }

    #[test]
    fn a_site_holds_what_was_allocated_there_and_not_freed() {
        let sites = sites();
        let first = sites.allocated(100, at(7, 2), |python, native| {
            python.write(b"grow\0train.py\x0012\n");
            native.write(b"libc10_cuda.so+0x10");
        });
        assert_eq!(sites.allocated(50, at(7, 9), |_, _| unreachable!()), first);
        let other = sites.allocated(5, at(8, 3), |_, native| native.write(b"x+0x1"));
        assert!(first != other && first > 0 && other > 0);
        sites.freed(first, 100);
        sites.freed(other, 5);
        sites.freed(0, 5);
        let [one] = &sites.read()[..] else { panic!("{:?}", sites.read()) };
        assert_eq!((one.number, one.held, one.allocations), (first, 50, 2));
        assert_eq!((one.first_step, one.last_step), (Step(2), Step(9)));
        assert_eq!((&one.python[..], &one.native[..]), ("grow\0train.py\x0012\n", "libc10_cuda.so+0x10"));
    }

    #[test]
    fn memory_of_more_sites_than_fit_belongs_to_none() {
        let sites = sites();
        let placed = (1..=1000).filter(|&n| sites.allocated(1, at(n, 1), |_, _| ()) > 0).count();
        assert!((MEMORY_SITES / 2..=MEMORY_SITES).contains(&placed), "{placed}");
        assert_eq!(sites.allocated(1, Allocating { frames: 0, returns_to: 0, step: Step(1) }, |_, _| ()), 0);
    }
}
