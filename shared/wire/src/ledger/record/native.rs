//! Native call sites: the code that called NCCL, as an offset in its file. The address of a site differs
//! between ranks, the offset does not.

use super::super::{
    last::Bytes,
    sync::{Acquire, AtomicU64, Relaxed, Release},
};

/// Largest number of native call sites. For further ones, only the address is known.
pub const NATIVE_SITES: usize = 64;

/// Words of a site's text.
const WORDS: usize = 8;

/// Number of slots that are probed.
const TRIES: usize = 4;

/// `libtorch_cuda.so+0x1a2b3c`; empty for code that is in no file.
pub type NativeText = Bytes<WORDS>;

#[repr(C)]
#[derive(Debug)]
pub struct NativeSites([NativeSite; NATIVE_SITES]);

#[repr(C)]
#[derive(Debug)]
struct NativeSite {
    /// The return address; 0 while the slot is free.
    address: AtomicU64,
    /// The number of unloaded libraries when the text was found, plus one; 0 before.
    found_at: AtomicU64,
    text: NativeText,
}

impl NativeSites {
    /// Notes that a call returns to this address. `describe` gives the text of a new address. It is called
    /// again after a library was unloaded, because another library may be at the address now. If the text
    /// differs, the site has no text from then on, because calls of both libraries have the same address.
    #[inline]
    pub fn note(&self, address: u64, unloaded: u32, describe: impl FnOnce(&mut [u8]) -> usize) {
        let now = u64::from(unloaded) + 1;
        for slot in self.slots(address) {
            let found = slot.address.load(Relaxed);
            if found == address && slot.found_at.load(Relaxed) == now {
                return;
            }
            if found == 0 || found == address {
                return slot.describe(address, now, describe);
            }
        }
    }

    /// The slots in which an address may be.
    #[inline]
    fn slots(&self, address: u64) -> impl Iterator<Item = &NativeSite> {
        // Return addresses differ little in their lowest and highest bits.
        let first = (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
        (0..TRIES).map(move |next| &self.0[(first + next) % NATIVE_SITES])
    }

    /// The text; `None` if it is unknown.
    pub fn read(&self, address: u64) -> Option<String> {
        let slot = self.slots(address).find(|slot| slot.address.load(Relaxed) == address)?;
        (slot.found_at.load(Acquire) > 0).then_some(())?;
        Some(String::from_utf8_lossy(&slot.text.read()).into_owned()).filter(|text| !text.is_empty())
    }
}

impl NativeSite {
    #[cold]
    fn describe(&self, address: u64, now: u64, describe: impl FnOnce(&mut [u8]) -> usize) {
        let is_new = self.address.compare_exchange(0, address, Relaxed, Relaxed).is_ok();
        if !is_new && self.address.load(Relaxed) != address {
            // Another thread took the slot in between. This site's next call probes the next slot.
            return;
        }
        let mut text = [0; NativeText::CAPACITY];
        let length = describe(&mut text).min(text.len());
        if is_new {
            self.text.write(&text[..length]);
        } else if self.found_at.load(Acquire) > 0 && self.text.read() != text[..length] {
            self.text.clear();
        }
        self.found_at.store(now, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sites() -> Box<NativeSites> {
        // SAFETY: it consists of atomic words, for which zero is a valid value.
        unsafe { Box::<NativeSites>::new_zeroed().assume_init() }
    }

    fn gives(text: &str) -> impl FnOnce(&mut [u8]) -> usize {
        move |into| {
            into[..text.len()].copy_from_slice(text.as_bytes());
            text.len()
        }
    }

    #[test]
    fn a_site_is_described_once_and_again_after_a_library_was_unloaded() {
        let sites = sites();
        let text = |address| sites.read(address);
        assert_eq!(text(0x7f00_0010), None);
        sites.note(0x7f00_0010, 1, gives("libtorch_cuda.so+0x10"));
        sites.note(0x7f00_0010, 1, |_| unreachable!());
        sites.note(0x7f00_0012, 1, gives("train+0x12"));
        assert_eq!(text(0x7f00_0010).as_deref(), Some("libtorch_cuda.so+0x10"));
        sites.note(0x7f00_0010, 2, gives("libtorch_cuda.so+0x10"));
        sites.note(0x7f00_0012, 2, gives("libother.so+0x12"));
        assert_eq!(text(0x7f00_0010).as_deref(), Some("libtorch_cuda.so+0x10"));
        assert_eq!(text(0x7f00_0012), None, "calls of two libraries came from there");
    }

    #[test]
    fn a_full_table_drops_further_sites() {
        let sites = sites();
        for address in 1..=1000 {
            sites.note(address, 0, gives("x+0x1"));
        }
        let kept = (1..=1000).filter(|&address| sites.read(address).is_some()).count();
        assert!((32..=NATIVE_SITES).contains(&kept), "{kept}");
    }
}
