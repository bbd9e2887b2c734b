//! A profiler plugin of NCCL, in the same file as the preload.
//!
//! ```text
//! ncclAllReduce ──▶ NCCL ── init, startEvent, ... ──▶ ncclProfiler_vN ──▶ the program's own plugin (chain)
//!                                                          ├──▶ plans: algorithm, protocol, channels
//!                                                          └──▶ counts, times, ledger, if the preload does not see the call
//! ```
//!
//! Calls to an NCCL that is statically linked or renamed, and calls of `pncclAllReduce`, bypass the
//! interposed functions. The plugin sees them. From version 5 of the interface on, it also sees their
//! streams, so they are timed like calls that the preload sees. Either the plugin or the preload counts a
//! communicator's calls ([`contexts`]).
//!
//! No callback allocates, fails or unwinds. The hook's handles are not pointers.

mod chain;
mod contexts;
mod layout;
mod mask;
mod plans;
mod seen;

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    ptr,
    sync::{
        Mutex,
        atomic::{AtomicU8, Ordering::Relaxed},
    },
};

use chain::{About, Init3, Init4, Init5, Record, Start, Stop};
pub(crate) use chain::{answer, version_of};
use contexts::Context;
use layout::{Descriptor, GROUP_ENDS, layout};
use mask::Windows;
pub(crate) use plans::{Kind, of as plan_of};

use xpu_wire::id::CommunicatorId;

use crate::{
    capture, interpose::guard, observe::observer::Observer, process::switch, publish::identity::Membership,
};

/// [`xpu_wire::endpoint::variable::PLUGIN`] as a C string.
const VARIABLE: &CStr = c"XPU_TOP_PLUGIN";

/// The structure that NCCL looks up. Versions differ only in the arguments of its functions.
#[repr(C)]
pub struct Plugin {
    name: *const c_char,
    init: *const c_void,
    start: Option<Start>,
    stop: Option<Stop>,
    record: Option<Record>,
    finalize: Option<Stop>,
}

impl std::fmt::Debug for Plugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plugin").finish_non_exhaustive()
    }
}

// SAFETY: the structure never changes.
unsafe impl Sync for Plugin {}

const _: () = assert!(size_of::<Plugin>() == 48, "NCCL reads six words");

const fn plugin<const VERSION: usize>(init: *const c_void) -> Plugin {
    Plugin {
        name: c"xpu-top".as_ptr(),
        init,
        start: Some(start::<VERSION>),
        stop: Some(stop::<VERSION>),
        record: Some(record::<VERSION>),
        finalize: Some(finalize::<VERSION>),
    }
}

macro_rules! export {
    ($($name:ident = $version:literal, $init:ident: $signature:ty;)*) => {
        $(
            /// The symbol that NCCL looks up.
            #[allow(non_upper_case_globals, reason = "the name is NCCL's")]
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub static $name: Plugin = plugin::<$version>({
                let init: $signature = $init::<$version>;
                init as *const c_void
            });
        )*

        fn of_version(version: usize) -> *const Plugin {
            match version {
                $($version => &raw const $name,)*
                _ => ptr::null(),
            }
        }
    };
}

export! {
    ncclProfiler_v1 = 1, init_nameless: Init3;
    ncclProfiler_v2 = 2, init_nameless: Init3;
    ncclProfiler_v3 = 3, init_nameless: Init3;
    ncclProfiler_v4 = 4, init_fourth: Init4;
    ncclProfiler_v5 = 5, init_named: Init5;
    ncclProfiler_v6 = 6, init_named: Init5;
    ncclProfiler_v7 = 7, init_named: Init5;
}

static WANTED: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const YES: u8 = 1;
const NO: u8 = 2;

/// Whether neither `XPU_TOP_PLUGIN=0` nor `XPU_TOP_DISABLE=1` is set. The environment is read when the hook
/// is loaded.
pub(crate) fn is_wanted() -> bool {
    if WANTED.load(Relaxed) == UNKNOWN {
        read_environment();
    }
    WANTED.load(Relaxed) == YES && !switch::is_broken()
}

pub(crate) fn read_environment() {
    // SAFETY: the name ends with NUL; nobody changes the environment before the program runs.
    let value = unsafe { libc::getenv(VARIABLE.as_ptr()) };
    // SAFETY: an entry of the environment is a string.
    let is_off = !value.is_null() && unsafe { CStr::from_ptr(value) } == c"0";
    WANTED.store(if is_off { NO } else { YES }, Relaxed);
}

/// The tag in the upper half of the hook's own handles. It is not part of any address, and unlikely in
/// another plugin's numbers.
const TAG: usize = 0x7870_746f_0000_0000;
const TAGGED: usize = 0xffff_ffff_0000_0000;

fn is_own_handle(handle: *mut c_void) -> bool {
    handle.addr() & TAGGED == TAG
}

/// Versions 1 to 3 report nothing about the communicator.
unsafe extern "C-unwind" fn init_nameless<const VERSION: usize>(
    place: *mut *mut c_void,
    mask: *mut c_int,
) -> c_int {
    // SAFETY: as NCCL documents.
    unsafe { init(VERSION, place, mask, None) }
}

unsafe extern "C-unwind" fn init_fourth<const VERSION: usize>(
    place: *mut *mut c_void,
    mask: *mut c_int,
    name: *const c_char,
    id: u64,
    nodes: c_int,
    ranks: c_int,
    rank: c_int,
    log: *mut c_void,
) -> c_int {
    // SAFETY: as NCCL documents.
    unsafe { init(VERSION, place, mask, Some(About { id, name, nodes, ranks, rank, log })) }
}

unsafe extern "C-unwind" fn init_named<const VERSION: usize>(
    place: *mut *mut c_void,
    id: u64,
    mask: *mut c_int,
    name: *const c_char,
    nodes: c_int,
    ranks: c_int,
    rank: c_int,
    log: *mut c_void,
) -> c_int {
    // SAFETY: as NCCL documents.
    unsafe { init(VERSION, place, mask, Some(About { id, name, nodes, ranks, rank, log })) }
}

/// Always succeeds, because after an error NCCL would send events without a context.
///
/// # Safety
/// As NCCL documents.
unsafe fn init(version: usize, place: *mut *mut c_void, mask: *mut c_int, about: Option<About>) -> c_int {
    // SAFETY: NCCL passes its own variable.
    let put = |context: *mut c_void| unsafe { place.write(context) };
    put(ptr::null_mut());
    if !is_wanted() || !chain::speaks(version) {
        return 0;
    }
    // SAFETY: as NCCL documents.
    let theirs = unsafe { chain::init(version, about.as_ref()) };
    let number = |number: c_int| u32::try_from(number).ok();
    let known = about.and_then(|about| {
        let (rank, size) = (number(about.rank)?, number(about.ranks)?);
        Some(Membership { communicator: CommunicatorId(about.id), rank, size })
    });
    if let Some(context) = Context::make(known) {
        if let Some(theirs) = theirs {
            context.set_theirs(theirs);
        }
        put(context.passed());
    } else if let Some(theirs) = theirs {
        put(theirs);
    }
    // SAFETY: NCCL passes its own mask.
    unsafe { mask::learn(mask) };
    0
}

unsafe extern "C-unwind" fn start<const VERSION: usize>(
    passed: *mut c_void,
    place: *mut *mut c_void,
    event: *mut c_void,
) -> c_int {
    let event = Descriptor { at: event, layout: layout(VERSION) };
    let context = Context::of(passed);
    // A context that is not the hook's belongs to the chained plugin, or to another process.
    let theirs = context.map_or_else(|| Some(passed).filter(|passed| !passed.is_null()), Context::theirs);
    // SAFETY: as NCCL documents.
    let (handle, result) =
        theirs.map_or((ptr::null_mut(), 0), |theirs| unsafe { chain::start(VERSION, theirs, event) });
    let own = context.and_then(|context| {
        // SAFETY: as NCCL documents.
        guard::called_back(|lane, inside| unsafe { seen::start(lane, inside, context, event, handle) })
    });
    // SAFETY: NCCL passes its own variable.
    unsafe { place.write(own.flatten().unwrap_or(handle)) };
    result
}

unsafe extern "C-unwind" fn stop<const VERSION: usize>(handle: *mut c_void) -> c_int {
    seen::stop(handle);
    if handle.is_null() || is_own_handle(handle) {
        return 0;
    }
    // SAFETY: as NCCL documents.
    unsafe { chain::stop(VERSION, handle) }
}

unsafe extern "C-unwind" fn record<const VERSION: usize>(
    handle: *mut c_void,
    state: c_int,
    more: *mut c_void,
) -> c_int {
    let is_for_them = !handle.is_null() && !is_own_handle(handle);
    // SAFETY: as NCCL documents.
    let result = if is_for_them { unsafe { chain::record(VERSION, handle, state, more) } } else { 0 };
    if state == GROUP_ENDS && VERSION >= layout::WITH_CALLS {
        seen::launches(handle);
    }
    result
}

unsafe extern "C-unwind" fn finalize<const VERSION: usize>(passed: *mut c_void) -> c_int {
    let context = Context::of(passed);
    let theirs = context.map_or_else(|| Some(passed).filter(|passed| !passed.is_null()), Context::theirs);
    // SAFETY: as NCCL documents.
    let result = theirs.map_or(0, |theirs| unsafe { chain::finalize(VERSION, theirs) });
    if let Some(context) = context {
        guard::quietly(|| context.end());
    }
    result
}

/// The mode that [`set`] sets.
static MODE: AtomicU8 = AtomicU8::new(GOVERNED);
const NEVER: u8 = 0;
const GOVERNED: u8 = 1;
const ALWAYS: u8 = 2;

/// Like `xpu_top_set_plugin`. `false` if there is no such mode.
pub(crate) fn set(mode: c_int) -> bool {
    let mode = u8::try_from(mode).ok().filter(|&mode| mode <= ALWAYS);
    if let Some(mode) = mode {
        MODE.store(mode, Relaxed);
    }
    mode.is_some()
}

/// Decides which events are needed. The hook's thread calls this periodically.
pub(crate) fn govern(observer: &Observer, now: u64) {
    static WINDOWS: Mutex<Windows> = Mutex::new(Windows::new());
    let Ok(mut windows) = WINDOWS.try_lock() else { return };
    let made = contexts::made();
    let learns = match MODE.load(Relaxed) {
        NEVER => false,
        ALWAYS => true,
        _ => capture::is_on() || windows.is_open(now),
    };
    mask::ask(contexts::are_needed(observer) || learns);
    if contexts::made() != made {
        // A communicator was created meanwhile: its first call must not be missed.
        mask::ask(true);
    }
}

/// Forgets the parent's communicators in a forked child.
pub(crate) fn forget() {
    contexts::forget();
}

#[cfg(test)]
mod tests {
    use xpu_wire::endpoint::variable;

    use super::*;

    #[test]
    fn the_variable_has_the_same_name_here() {
        assert_eq!(VARIABLE.to_str(), Ok(variable::PLUGIN));
    }
}
