//! Notes on handles, found without a lock. No thread waits for another. If too many handles share a set, the
//! oldest note is dropped. If two threads write to a set at once, one note may be lost; a later call writes
//! it again.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::process::memory;

/// Possible slots of one handle: a cache line.
const SLOTS_PER_SET: usize = 8;

/// The lower bits of a slot are a handle, which needs no more bits than an address; the other bits are its
/// note, which is not 0. An empty slot is 0.
const HANDLE: u64 = (1 << WORD) - 1;
const WORD: u32 = 48;

#[derive(Debug)]
pub(crate) struct Notes {
    lines: &'static [Line],
}

#[derive(Debug)]
#[repr(align(64))]
struct Line([AtomicU64; SLOTS_PER_SET]);

impl Notes {
    /// Bytes of notes for this number of handles.
    pub(crate) const fn memory(handles: usize) -> usize {
        handles / SLOTS_PER_SET * size_of::<Line>()
    }

    /// `None` if there is no memory for them. `handles` is a power of two.
    pub(crate) fn new(handles: usize) -> Option<Self> {
        // SAFETY: a line of zeros has no notes.
        Some(Self { lines: unsafe { memory::zeros(handles / SLOTS_PER_SET) }? })
    }

    /// The note; 0 if there is none.
    #[inline]
    pub(crate) fn of(&self, handle: usize) -> u16 {
        let notes = self.line(handle).0.iter().map(|place| place.load(Relaxed));
        notes.filter(|&note| is_of(note, handle)).map(word).next().unwrap_or(0)
    }

    /// Writes a note. `false` if another thread was faster at this slot.
    pub(crate) fn note(&self, handle: usize, word: u16) -> bool {
        let new = u64::from(word) << WORD | handle as u64 & HANDLE;
        let line = &self.line(handle).0;
        let put = |place: &AtomicU64, before| place.compare_exchange(before, new, Relaxed, Relaxed).is_ok();
        if let Some((place, note)) = find(line, |note| is_of(note, handle)) {
            return note == new || put(place, note);
        }
        if let Some((place, none)) = find(line, |note| note == 0) {
            return put(place, none);
        }
        // The other notes move up, and the oldest is dropped.
        let notes = line.each_ref().map(|place| place.load(Relaxed));
        for (place, note) in line.iter().zip(&notes[1..]) {
            place.store(*note, Relaxed);
        }
        line[SLOTS_PER_SET - 1].store(new, Relaxed);
        true
    }

    #[inline]
    pub(crate) fn forget(&self, handle: usize) {
        for place in &self.line(handle).0 {
            let note = place.load(Relaxed);
            if is_of(note, handle) {
                let _ = place.compare_exchange(note, 0, Relaxed, Relaxed);
            }
        }
    }

    #[inline]
    fn line(&self, handle: usize) -> &Line {
        let hash = (handle as u64 & HANDLE).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &self.lines[hash as usize & (self.lines.len() - 1)]
    }
}

fn find(line: &[AtomicU64; SLOTS_PER_SET], fits: impl Fn(u64) -> bool) -> Option<(&AtomicU64, u64)> {
    line.iter().map(|place| (place, place.load(Relaxed))).find(|&(_, note)| fits(note))
}

#[inline]
fn is_of(note: u64, handle: usize) -> bool {
    note != 0 && (note ^ handle as u64) & HANDLE == 0
}

fn word(note: u64) -> u16 {
    (note >> WORD) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_found_changed_and_forgotten() {
        let notes = Notes::new(64).unwrap();
        assert_eq!(notes.of(0), 0, "an empty place is not the default stream's");
        assert!(notes.note(0, 3) && notes.note(0x7fff_1234_5678, 5) && notes.note(0, 7));
        assert_eq!([0, 0x7fff_1234_5678, 1].map(|handle| notes.of(handle)), [7, 5, 0]);
        notes.forget(0);
        assert_eq!([0, 0x7fff_1234_5678].map(|handle| notes.of(handle)), [0, 5]);
    }

    #[test]
    fn the_first_of_too_many_notes_is_dropped() {
        let notes = Notes::new(SLOTS_PER_SET).unwrap();
        for handle in 1..=SLOTS_PER_SET + 2 {
            assert!(notes.note(handle, 1));
        }
        let known: Vec<_> = (1..=SLOTS_PER_SET + 2).filter(|&handle| notes.of(handle) == 1).collect();
        assert_eq!(known, (3..=SLOTS_PER_SET + 2).collect::<Vec<_>>());
    }

    #[test]
    fn hundreds_of_handles_find_room() {
        let notes = Notes::new(4096).unwrap();
        // Handles at the distances that an allocator makes.
        let handle = |number: usize| 0x5581_2340_0000 + number * 112;
        (0..1000).for_each(|number| assert!(notes.note(handle(number), 1)));
        let known = (0..1000).filter(|&number| notes.of(handle(number)) == 1).count();
        assert!(known > 990, "{known}");
    }
}
