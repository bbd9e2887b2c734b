//! The offsets of the fields of an event's descriptor, for each version of NCCL's profiler interface.
//!
//! The offsets are the same on x86-64 and aarch64 Linux. `tests/plugin_layouts.rs` checks them against the
//! public headers.

use std::ffi::{c_char, c_int, c_void};

/// Bits of an event's type, and of the masks that select events.
pub(crate) mod kind {
    pub(crate) const GROUP: u64 = 1;
    pub(crate) const COLL: u64 = 1 << 1;
    pub(crate) const P2P: u64 = 1 << 2;
    pub(crate) const PROXY_OP: u64 = 1 << 3;
    pub(crate) const PROXY_STEP: u64 = 1 << 4;
    pub(crate) const PROXY_CTRL: u64 = 1 << 5;
    pub(crate) const KERNEL_CHANNEL: u64 = 1 << 6;
    pub(crate) const NET: u64 = 1 << 7;
    pub(crate) const GROUP_API: u64 = 1 << 8;
    pub(crate) const COLL_API: u64 = 1 << 9;
    pub(crate) const P2P_API: u64 = 1 << 10;
    pub(crate) const CE_COLL: u64 = 1 << 12;
    pub(crate) const CE_SYNC: u64 = 1 << 13;
    pub(crate) const CE_BATCH: u64 = 1 << 14;
    pub(crate) const KERNEL_PHASE: u64 = 1 << 15;
}

/// The state in which the program's `ncclGroupEnd` begins to launch. Since version 5.
pub(crate) const GROUP_ENDS: c_int = 24;

/// Versions of the interface, from 1.
pub(crate) const VERSIONS: usize = 7;

/// From this version on, calls have separate events.
pub(crate) const WITH_CALLS: usize = 5;

/// The largest descriptor, in words.
pub(crate) const LARGEST: usize = 17;

/// A descriptor, with the layout of its version.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptor {
    pub(crate) at: *const c_void,
    pub(crate) layout: &'static Layout,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) size: usize,
    /// The type has one byte, else eight.
    pub(crate) narrow_type: bool,
    /// Function, type, algorithm and protocol are one-byte numbers, else names.
    pub(crate) numbers: bool,
    pub(crate) coll: Coll,
    pub(crate) p2p: P2p,
}

pub(crate) const PARENT: usize = 8;

/// A field without an offset does not exist in that version.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Coll {
    pub(crate) hash: Option<usize>,
    pub(crate) func: usize,
    pub(crate) count: usize,
    pub(crate) root: usize,
    pub(crate) datatype: usize,
    pub(crate) channels: usize,
    pub(crate) algo: usize,
    pub(crate) proto: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct P2p {
    pub(crate) func: usize,
    pub(crate) datatype: usize,
    pub(crate) count: usize,
    pub(crate) peer: usize,
}

/// The fields of a collective's call, the same in all versions that have them.
pub(crate) struct CollApi;

impl CollApi {
    pub(crate) const FUNC: usize = 24;
    pub(crate) const COUNT: usize = 32;
    pub(crate) const DATATYPE: usize = 40;
    pub(crate) const ROOT: usize = 48;
    pub(crate) const STREAM: usize = 56;
}

const V4: Layout = Layout {
    size: 104,
    narrow_type: true,
    numbers: false,
    coll: Coll { hash: None, func: 32, count: 56, root: 64, datatype: 72, channels: 80, algo: 88, proto: 96 },
    p2p: P2p { func: 24, datatype: 40, count: 48, peer: 56 },
};

const V3: Layout = Layout {
    size: 120,
    coll: Coll {
        hash: Some(32),
        func: 48,
        count: 72,
        root: 80,
        datatype: 88,
        channels: 96,
        algo: 104,
        proto: 112,
    },
    p2p: P2p { func: 40, datatype: 56, count: 64, peer: 72 },
    ..V4
};

const V2: Layout = Layout { size: 128, coll: Coll { channels: 104, algo: 112, proto: 120, ..V3.coll }, ..V3 };

const V1: Layout = Layout {
    size: 120,
    numbers: true,
    coll: Coll { datatype: 84, channels: 104, algo: 106, proto: 107, ..V3.coll },
    ..V3
};

const V5: Layout = Layout { size: 112, narrow_type: false, ..V4 };

/// Version 7 has more fields than version 6, all behind the fields that are read here.
static LAYOUTS: [Layout; VERSIONS] = [V1, V2, V3, V4, V5, V5, Layout { size: 136, ..V5 }];

/// The layout of a version, from 1.
pub(crate) fn layout(version: usize) -> &'static Layout {
    &LAYOUTS[version - 1]
}

impl Descriptor {
    /// # Safety
    /// The field exists, and `T` is its type.
    unsafe fn read<T: Copy>(self, offset: usize) -> T {
        // SAFETY: the caller promises it.
        unsafe { self.at.byte_add(offset).cast::<T>().read_unaligned() }
    }

    /// # Safety
    /// It is a descriptor of this version.
    pub(crate) unsafe fn kind(self) -> u64 {
        // SAFETY: all versions have it at the beginning.
        unsafe { if self.layout.narrow_type { u64::from(self.read::<u8>(0)) } else { self.read(0) } }
    }

    /// # Safety
    /// It is a descriptor of this version.
    pub(crate) unsafe fn parent(self) -> *mut c_void {
        // SAFETY: all versions have it at this offset.
        unsafe { self.read(PARENT) }
    }

    /// # Safety
    /// It is a descriptor of this version, of an event with this field.
    pub(crate) unsafe fn whole(self, offset: usize) -> u64 {
        // SAFETY: the caller promises it.
        unsafe { self.read(offset) }
    }

    /// # Safety
    /// As for [`Self::whole`].
    pub(crate) unsafe fn int(self, offset: usize) -> c_int {
        // SAFETY: the caller promises it.
        unsafe { self.read(offset) }
    }

    /// # Safety
    /// As for [`Self::whole`].
    pub(crate) unsafe fn byte(self, offset: usize) -> u8 {
        // SAFETY: the caller promises it.
        unsafe { self.read(offset) }
    }

    /// # Safety
    /// As for [`Self::whole`].
    pub(crate) unsafe fn address(self, offset: usize) -> *mut c_void {
        // SAFETY: the caller promises it.
        unsafe { self.read(offset) }
    }

    /// A name, which stays valid in NCCL; empty if there is none.
    ///
    /// # Safety
    /// As for [`Self::whole`].
    pub(crate) unsafe fn name(self, offset: usize) -> &'static [u8] {
        // SAFETY: the caller promises it; names are constants of NCCL's, and end with NUL.
        unsafe {
            let text: *const c_char = self.read(offset);
            if text.is_null() { &[] } else { std::ffi::CStr::from_ptr(text).to_bytes() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patched_copy_holds_the_largest_descriptor() {
        let largest = (1..=VERSIONS).map(|version| layout(version).size).max();
        assert_eq!(largest, Some(LARGEST * size_of::<u64>()));
    }

    #[test]
    fn fields_lie_within_their_descriptor() {
        for version in 1..=VERSIONS {
            let Layout { size, numbers, coll, p2p, .. } = *layout(version);
            let width = if numbers { 1 } else { 8 };
            let ends = [
                coll.proto + width,
                coll.algo + width,
                coll.channels + 1,
                coll.count + 8,
                p2p.peer + 4,
                p2p.count + 8,
            ];
            assert!(ends.iter().all(|&end| end <= size), "version {version}");
        }
    }
}

#[cfg(test)]
mod headers;
