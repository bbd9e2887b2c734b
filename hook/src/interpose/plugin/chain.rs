//! The plugin that the program has set. It is chained behind the hook's, and gets every callback that it
//! requests.
//!
//! NCCL looks up the plugin's symbol with `dlsym`. If the program has set a plugin, the answer is the hook's
//! plugin in the version of that symbol. So NCCL and the program's plugin agree on the same version as
//! without the hook.

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    ptr,
    sync::atomic::{
        AtomicBool, AtomicPtr,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use super::{
    Plugin,
    layout::{Descriptor, LARGEST, PARENT, VERSIONS},
    mask,
};
use crate::interpose::symbol::{self, Name, each};

/// The chained plugin, by version.
static BEHIND: [AtomicPtr<Plugin>; VERSIONS] = [const { AtomicPtr::new(ptr::null_mut()) }; VERSIONS];

/// Whether the layout of version 7 is that of this NCCL.
static SEVENTH: AtomicBool = AtomicBool::new(false);

/// Public forks had other layouts under the name of version 7. So that version is used only with NVIDIA's
/// NCCL, from this release on.
const SINCE: c_int = 23_102;
/// The first release whose layout is not known yet: 2.33.
const BEFORE: c_int = 23_300;

pub(super) fn speaks(version: usize) -> bool {
    version < VERSIONS || SEVENTH.load(Relaxed)
}

/// The version in the name of this symbol, from 1.
#[inline]
pub(crate) fn version_of(name: &CStr) -> Option<usize> {
    let number = name.to_bytes().strip_prefix(b"ncclProfiler_v")?;
    let [digit] = number else { return None };
    let version = usize::from(digit.wrapping_sub(b'0'));
    (1..=VERSIONS).contains(&version).then_some(version)
}

/// The answer that NCCL gets instead of `real` for the plugin symbol of this name.
#[cold]
pub(crate) fn answer(real: *mut c_void, name: &CStr, caller: usize) -> *mut c_void {
    let Some(version) = version_of(name) else { return real };
    if real.is_null() || !super::is_wanted() {
        return real;
    }
    let own: *mut c_void = super::of_version(version).cast_mut().cast();
    let is_own = real == own;
    if version == VERSIONS {
        SEVENTH.store(is_of_nvidia(caller), Relaxed);
        if !speaks(version) {
            // After NULL, NCCL looks for an older version of the hook's own plugin.
            return if is_own { ptr::null_mut() } else { real };
        }
    }
    let behind = if is_own {
        // `STATIC_PLUGIN`: the hook hides a plugin in the global scope.
        ptr::with_exposed_provenance_mut(symbol::next_definition(&Name::new(name)))
    } else {
        real.cast()
    };
    BEHIND[version - 1].store(behind, Release);
    own
}

/// Whether the code at `caller` belongs to an NCCL of NVIDIA whose layout of version 7 is known.
fn is_of_nvidia(caller: usize) -> bool {
    type GetVersion = unsafe extern "C" fn(*mut c_int) -> c_int;
    let mut at = 0;
    each(|object| {
        let is_it = object.span.contains(caller);
        if is_it && object.file_name().starts_with(b"libnccl") {
            at = object.find(&Name::new(c"ncclGetVersion")).unwrap_or_default();
        }
        is_it
    });
    if at == 0 {
        return false;
    }
    let mut version = 0;
    // SAFETY: NCCL's function of this name has this signature, and its code is running.
    let answered = unsafe { std::mem::transmute::<usize, GetVersion>(at)(&raw mut version) } == 0;
    answered && (SINCE..BEFORE).contains(&version)
}

fn behind(version: usize) -> Option<&'static Plugin> {
    // SAFETY: NCCL keeps a plugin loaded as long as it calls it.
    unsafe { BEHIND[version - 1].load(Acquire).as_ref() }
}

pub(super) type Init3 = unsafe extern "C-unwind" fn(*mut *mut c_void, *mut c_int) -> c_int;
pub(super) type Init4 = unsafe extern "C-unwind" fn(
    *mut *mut c_void,
    *mut c_int,
    *const c_char,
    u64,
    c_int,
    c_int,
    c_int,
    *mut c_void,
) -> c_int;
pub(super) type Init5 = unsafe extern "C-unwind" fn(
    *mut *mut c_void,
    u64,
    *mut c_int,
    *const c_char,
    c_int,
    c_int,
    c_int,
    *mut c_void,
) -> c_int;
pub(super) type Start = unsafe extern "C-unwind" fn(*mut c_void, *mut *mut c_void, *mut c_void) -> c_int;
pub(super) type Stop = unsafe extern "C-unwind" fn(*mut c_void) -> c_int;
pub(super) type Record = unsafe extern "C-unwind" fn(*mut c_void, c_int, *mut c_void) -> c_int;

/// NCCL's report about a communicator, from version 4 on.
#[derive(Clone, Copy)]
pub(super) struct About {
    pub(super) id: u64,
    pub(super) name: *const c_char,
    pub(super) nodes: c_int,
    pub(super) ranks: c_int,
    pub(super) rank: c_int,
    pub(super) log: *mut c_void,
}

/// Calls the chained plugin's `init`. Returns its context, if it takes part.
///
/// # Safety
/// As NCCL documents.
pub(super) unsafe fn init(version: usize, about: Option<&About>) -> Option<*mut c_void> {
    let plugin = behind(version)?;
    let at = plugin.init;
    if at.is_null() {
        return None;
    }
    let (mut context, mask) = (ptr::null_mut(), mask::theirs());
    // SAFETY: a plugin of this version has an `init` of this signature.
    let result = unsafe {
        match (version, about) {
            (5.., Some(about)) => {
                let About { id, name, nodes, ranks, rank, log } = *about;
                let init = std::mem::transmute::<*const c_void, Init5>(at);
                init(&raw mut context, id, mask, name, nodes, ranks, rank, log)
            }
            (4, Some(about)) => {
                let About { id, name, nodes, ranks, rank, log } = *about;
                let init = std::mem::transmute::<*const c_void, Init4>(at);
                init(&raw mut context, mask, name, id, nodes, ranks, rank, log)
            }
            _ => std::mem::transmute::<*const c_void, Init3>(at)(&raw mut context, mask),
        }
    };
    (result == 0).then_some(context)
}

/// Passes an event to the chained plugin. Returns its handle, or NULL if it has none, and its result.
///
/// # Safety
/// As NCCL documents. `context` is that of the chained plugin.
pub(super) unsafe fn start(version: usize, context: *mut c_void, event: Descriptor) -> (*mut c_void, c_int) {
    let (mut handle, nothing) = (ptr::null_mut(), (ptr::null_mut(), 0));
    let Some(start) = behind(version).and_then(|plugin| plugin.start) else { return nothing };
    // SAFETY: it is a descriptor of this version.
    let (kind, parent) = unsafe { (event.kind(), event.parent()) };
    if !mask::reaches(kind, mask::wanted_by_them()) {
        return nothing;
    }
    if !super::is_own_handle(parent) {
        // SAFETY: the caller promises it.
        let result = unsafe { start(context, &raw mut handle, event.at.cast_mut()) };
        return (handle, result);
    }
    // The chained plugin did not get the event's parent.
    let mut copy = [0_u64; LARGEST];
    // SAFETY: a descriptor of this version has this length, and the copy is at least as long.
    let result = unsafe {
        ptr::copy_nonoverlapping(event.at.cast::<u8>(), copy.as_mut_ptr().cast(), event.layout.size);
        copy[PARENT / size_of::<u64>()] = 0;
        start(context, &raw mut handle, copy.as_mut_ptr().cast())
    };
    (handle, result)
}

/// # Safety
/// As NCCL documents; the handle is not the hook's.
pub(super) unsafe fn stop(version: usize, handle: *mut c_void) -> c_int {
    // SAFETY: the caller promises it.
    behind(version).and_then(|plugin| plugin.stop).map_or(0, |stop| unsafe { stop(handle) })
}

/// # Safety
/// As NCCL documents; the handle is not the hook's.
pub(super) unsafe fn record(version: usize, handle: *mut c_void, state: c_int, more: *mut c_void) -> c_int {
    // SAFETY: the caller promises it.
    behind(version)
        .and_then(|plugin| plugin.record)
        .map_or(0, |record| unsafe { record(handle, state, more) })
}

/// # Safety
/// As NCCL documents; the context is that of the chained plugin.
pub(super) unsafe fn finalize(version: usize, context: *mut c_void) -> c_int {
    // NCCL does not call `finalize` for a plugin without a context.
    if context.is_null() {
        return 0;
    }
    // SAFETY: the caller promises it.
    behind(version).and_then(|plugin| plugin.finalize).map_or(0, |finalize| unsafe { finalize(context) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_plugins_own_symbols_are_followed() {
        assert_eq!(version_of(c"ncclProfiler_v1"), Some(1));
        assert_eq!(version_of(c"ncclProfiler_v7"), Some(7));
        for name in
            [c"ncclProfiler_v8", c"ncclProfiler_v0", c"ncclProfiler_v10", c"ncclProfiler", c"ncclNet_v5"]
        {
            assert_eq!(version_of(name), None, "{name:?}");
        }
        let other: *mut c_void = ptr::without_provenance_mut(64);
        assert_eq!(answer(other, c"ncclNet_v5", 0), other);
        assert_eq!(answer(ptr::null_mut(), c"ncclProfiler_v5", 0), ptr::null_mut());
        // The caller is not NCCL.
        assert_eq!(answer(other, c"ncclProfiler_v7", 0), other);
    }
}
