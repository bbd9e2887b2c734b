//! Other users of CUPTI. PyTorch calls CUPTI through the dynamic linker, so its calls are interposed: each is
//! noted and passed on.

use std::{
    cell::Cell,
    ffi::{c_int, c_void},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use super::{CUPTI, Completed, NOT_INITIALIZED, Requested, SUCCESS, session};

/// A bit for each kind of record that others have enabled.
static KINDS: AtomicU64 = AtomicU64::new(0);
static SUBSCRIBED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether this thread is in a CUPTI call of the hook, in which CUPTI may call its own functions.
    static OURS: Cell<bool> = const { Cell::new(false) };
}

/// Runs `doing` as a call of the hook.
pub(super) fn ours<T>(doing: impl FnOnce() -> T) -> T {
    let before = OURS.replace(true);
    let done = doing();
    OURS.set(before);
    done
}

pub(super) fn are_recording() -> bool {
    KINDS.load(Relaxed) != 0
}

pub(super) fn are_subscribed() -> bool {
    SUBSCRIBED.load(Relaxed)
}

pub(super) fn have(kind: u32) -> bool {
    KINDS.load(Relaxed) & bit(kind) != 0
}

fn bit(kind: u32) -> u64 {
    1_u64.checked_shl(kind).unwrap_or(0)
}

fn switched(kind: c_int, on: bool) {
    let bit = bit(kind as u32);
    if on {
        KINDS.fetch_or(bit, Relaxed);
    } else {
        KINDS.fetch_and(!bit, Relaxed);
    }
}

/// These calls need no lane and no observer: the caller prepares to record, and has not launched anything
/// yet.
macro_rules! forward {
    ($(
        fn $name:ident($($argument:ident: $type:ty),* $(,)?);
        before $before:expr;
        after $after:expr;
    )*) => {$(
        /// # Safety
        /// As CUPTI documents for the function of this name.
        #[unsafe(naked)]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> c_int {
            $crate::interpose::stub::stub!($name::observe, $name::SYMBOL, $crate::process::switch::FOR_GOOD)
        }

        mod $name {
            #[allow(unused_imports, reason = "what the module above has is there for its functions")]
            use super::*;

            pub(super) static SYMBOL: $crate::interpose::symbol::Symbol =
                $crate::interpose::symbol::Symbol::new($crate::interpose::symbol::name!($name), &CUPTI, NOT_INITIALIZED);

            pub(super) unsafe extern "C-unwind" fn observe($($argument: $type),*) -> c_int {
                type Real = unsafe extern "C-unwind" fn($($type),*) -> c_int;
                let target = SYMBOL.find($crate::interpose::stub::caller());
                if target.at.is_null() {
                    return NOT_INITIALIZED;
                }
                // SAFETY: the symbol of this name has this signature in every version of CUPTI's public header.
                let real = unsafe { std::mem::transmute::<*mut c_void, Real>(target.at) };
                let theirs = !OURS.get();
                if theirs {
                    quietly(|| $before);
                }
                // SAFETY: the caller keeps CUPTI's own preconditions.
                let result = unsafe { real($($argument),*) };
                if theirs && result == SUCCESS {
                    quietly(|| $after);
                }
                result
            }
        }
    )*};
}

/// If something fails here, the program's call is still made.
#[inline(never)]
fn quietly(what: impl FnOnce()) {
    if let Err(payload) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(what)) {
        std::mem::forget(payload);
    }
}

forward! {
    fn cuptiSubscribe(subscriber: *mut *mut c_void, callback: *const c_void, data: *mut c_void);
    before session::wait_for_begin();
    after SUBSCRIBED.store(true, Relaxed);

    fn cuptiUnsubscribe(subscriber: *mut c_void);
    before {};
    after SUBSCRIBED.store(false, Relaxed);

    fn cuptiActivityRegisterCallbacks(requested: Requested, completed: Completed);
    before session::yield_to();
    after {};

    fn cuptiActivityEnable(kind: c_int);
    before {};
    after switched(kind, true);

    fn cuptiActivityDisable(kind: c_int);
    before {};
    after switched(kind, false);

    fn cuptiFinalize();
    before session::yield_to();
    after {
        KINDS.store(0, Relaxed);
        SUBSCRIBED.store(false, Relaxed);
    };
}
