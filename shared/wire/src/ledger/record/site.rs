//! Call sites: where in the program an NCCL call was made, noted at its first occurrence.

use super::super::{
    last::Bytes,
    sync::{Acquire, AtomicU64, Relaxed, Release},
};

/// Largest number of sites. Calls of further sites have only a return address.
pub const SITES: usize = 256;

/// Words of a site's text.
const WORDS: usize = 66;

/// Number of slots that are probed.
const TRIES: usize = 4;

/// The text of a site: `function`, `file` and `line` of a few Python frames, innermost first, each ended by a
/// newline.
pub type SiteText = Bytes<WORDS>;

#[repr(C)]
#[derive(Debug)]
pub struct Sites([Site; SITES]);

#[repr(C)]
#[derive(Debug)]
struct Site {
    /// The hash of the frames; 0 while it is free.
    key: AtomicU64,
    /// Whether the text is written.
    written: AtomicU64,
    text: SiteText,
}

impl Sites {
    /// The number of a site, from 1 on; 0 if the table is full. `write` writes the text of a new one.
    #[inline]
    pub fn known(&self, key: u64, write: impl FnOnce(&SiteText)) -> u16 {
        if key == 0 {
            return 0;
        }
        for place in 0..TRIES {
            let index = (key as usize).wrapping_add(place) % SITES;
            let found = self.0[index].key.load(Relaxed);
            if found == key {
                return index as u16 + 1;
            }
            if found == 0 {
                return self.note(index, key, write);
            }
        }
        0
    }

    #[cold]
    fn note(&self, index: usize, key: u64, write: impl FnOnce(&SiteText)) -> u16 {
        let site = &self.0[index];
        match site.key.compare_exchange(0, key, Relaxed, Relaxed) {
            Ok(_) => {
                write(&site.text);
                site.written.store(1, Release);
                index as u16 + 1
            }
            Err(other) if other == key => index as u16 + 1,
            // Another thread took the slot in between. This site's next call probes the next slot.
            Err(_) => 0,
        }
    }

    /// `None` if it has no text.
    pub fn read(&self, number: u16) -> Option<SiteReading> {
        let site = self.0.get(usize::from(number).checked_sub(1)?)?;
        if site.written.load(Acquire) == 0 {
            return None;
        }
        let text = site.text.read();
        Some(SiteReading { text: String::from_utf8_lossy(&text).into_owned() })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteReading {
    pub text: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_is_reported_once_and_found_again() {
        // SAFETY: it consists of atomic words, for which zero is a valid value.
        let sites = unsafe { Box::<Sites>::new_zeroed().assume_init() };
        assert_eq!((sites.known(0, |_| unreachable!()), sites.read(0)), (0, None));
        let first = sites.known(77, |text| text.write(b"train\0train.py\x0012\n"));
        let again = sites.known(77, |_| unreachable!());
        let beside = sites.known(77 + SITES as u64, |text| text.write(b"x"));
        assert!(first == again && first != beside && beside > 0);
        assert_eq!(sites.read(first).unwrap().text, "train\0train.py\x0012\n");
        assert_eq!(sites.read(u16::MAX), None);
        let kept = (1..=10_000).filter(|key| sites.known(key * SITES as u64, |_| ()) > 0).count();
        assert!(kept <= TRIES, "{kept}");
    }
}
