//! The functions by which a program sets signal actions. For a fatal signal they report the program's own
//! action, and the kernel keeps the hook's handler. All other calls go to the C library unchanged. A program
//! that makes the system call directly finds the hook's handler.

use std::{
    ffi::{c_int, c_void},
    mem::{MaybeUninit, transmute},
    ptr,
    sync::atomic::{
        AtomicBool,
        Ordering::{Acquire, Release},
    },
};

use super::{INSTALLED, address, requested, requested::RequestedAction};
use crate::{exit_note::real::Real, interpose::symbol, process::mask};

type SigAction = unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;
type Signal = unsafe extern "C" fn(c_int, libc::sighandler_t) -> libc::sighandler_t;

/// `sigset(3)`
const SIG_HOLD: libc::sighandler_t = 2;

static SIGACTION: Real = Real::new(c"sigaction");
static SIGNAL: Real = Real::new(c"signal");
static BSD_SIGNAL: Real = Real::new(c"bsd_signal");
static SSIGNAL: Real = Real::new(c"ssignal");
static SYSV_SIGNAL: Real = Real::new(c"sysv_signal");
static DOUBLE_SYSV_SIGNAL: Real = Real::new(c"__sysv_signal");
static SIGSET: Real = Real::new(c"sigset");

unsafe extern "C" {
    /// glibc's internal name of `sigaction`, for calls before the hook's constructor has run.
    fn __sigaction(number: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int;
}

pub(in super::super) fn find() {
    let all: [(&Real, *const c_void); 7] = [
        (&SIGACTION, sigaction as *const c_void),
        (&SIGNAL, signal as *const c_void),
        (&BSD_SIGNAL, bsd_signal as *const c_void),
        (&SSIGNAL, ssignal as *const c_void),
        (&SYSV_SIGNAL, sysv_signal as *const c_void),
        (&DOUBLE_SYSV_SIGNAL, __sysv_signal as *const c_void),
        (&SIGSET, sigset as *const c_void),
    ];
    for (real, own) in all {
        real.find(own);
    }
    IS_IN_FRONT.store(calls_come_here(), Release);
}

/// The result of [`calls_come_here`] when the hook was loaded. It is cached, because the check takes the
/// loader's lock.
static IS_IN_FRONT: AtomicBool = AtomicBool::new(false);

pub(super) fn is_in_front() -> bool {
    IS_IN_FRONT.load(Acquire)
}

/// Whether the program's calls come here. They do not if the hook was opened later (`dlopen`), or if another
/// preload interposes them first.
fn calls_come_here() -> bool {
    // SAFETY: the name is NUL-terminated; dlsym has no other precondition.
    let called = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"sigaction".as_ptr()) };
    symbol::is_here(called.addr())
}

/// The index of a fatal signal, while the kernel has the hook's handlers.
#[inline]
fn place(number: c_int) -> Option<usize> {
    super::place(number).filter(|_| INSTALLED.load(Acquire))
}

/// # Safety
/// As `sigaction(2)`.
pub(super) unsafe fn real_sigaction(
    number: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: the function of this name has this signature (POSIX).
    let real = SIGACTION.get().map(|at| unsafe { transmute::<*mut c_void, SigAction>(at) });
    // SAFETY: the caller's promise.
    unsafe { real.map_or_else(|| __sigaction(number, new, old), |real| real(number, new, old)) }
}

/// The kernel's action for a signal.
fn kernels(number: c_int) -> libc::sigaction {
    let mut action = MaybeUninit::zeroed();
    // SAFETY: the call writes only to `action`, and all-zero bytes are a valid action.
    unsafe {
        real_sigaction(number, ptr::null(), action.as_mut_ptr());
        action.assume_init()
    }
}

/// Sets the default action without flags.
pub(super) fn reset(number: c_int) {
    // SAFETY: all-zero bytes are that action.
    unsafe { real_sigaction(number, MaybeUninit::zeroed().as_ptr(), ptr::null_mut()) };
}

/// The action that the kernel gets instead of the program's.
fn in_front(asked: &libc::sigaction) -> libc::sigaction {
    let mut action = *asked;
    action.sa_sigaction = address();
    action.sa_flags = (action.sa_flags | libc::SA_SIGINFO) & !libc::SA_RESETHAND;
    if asked.sa_sigaction == libc::SIG_DFL {
        // With an alternate stack, a stack overflow can be noted.
        action.sa_flags |= libc::SA_ONSTACK;
    }
    action
}

/// Puts the hook's handler in place, unless the signal is ignored.
pub(super) fn begin(number: c_int, place: usize) {
    let was = kernels(number);
    if let Some(asked) = RequestedAction::of(&was).filter(|_| was.sa_sigaction != address()) {
        requested::store(place, asked);
        // SAFETY: both are actions of this process.
        unsafe { real_sigaction(number, ptr::from_ref(&in_front(&was)), ptr::null_mut()) };
    }
}

/// # Safety
/// As `sigaction(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sigaction(
    number: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    let Some(place) = place(number) else {
        // SAFETY: the caller's promise.
        unsafe {
            if let Some(new) = new.as_ref() {
                mask::is_handled_by(new.sa_sigaction);
            }
            return real_sigaction(number, new, old);
        }
    };
    // SAFETY: as above; `new` is read before `old` is written.
    let mine = unsafe { new.as_ref() }.map(|new| (in_front(new), RequestedAction::of(new)));
    requested::exclusively(|| {
        let before = requested::load(place);
        let code = match mine {
            Some((action, Some(asked))) if requested::is_own() => {
                // Stored first, because the hook's handler needs it as soon as the kernel calls it.
                requested::store(place, asked.by_libc());
                // SAFETY: the caller's promise of `old`.
                let code = unsafe { real_sigaction(number, &raw const action, old) };
                if code != 0 {
                    requested::store(place, before);
                }
                code
            }
            // SAFETY: the caller's promise.
            _ => unsafe { real_sigaction(number, new, old) },
        };
        // SAFETY: as above.
        if let Some(old) = unsafe { old.as_mut() }.filter(|old| code == 0 && old.sa_sigaction == address()) {
            before.put_into(old);
        }
        code
    })
}

/// Implements the functions that take only a handler: the C library chooses the flags and the mask.
unsafe fn by_handler(
    real: &Real,
    own: Signal,
    number: c_int,
    handler: libc::sighandler_t,
) -> libc::sighandler_t {
    if real.get().is_none() {
        // The hook's constructor has not run yet, so this is not a signal handler.
        real.find(own as *const c_void);
    }
    let Some(at) = real.get() else { return libc::SIG_ERR };
    // SAFETY: the functions of these names have this signature.
    let real = unsafe { transmute::<*mut c_void, Signal>(at) };
    let Some(place) = place(number) else {
        mask::is_handled_by(handler);
        // SAFETY: the caller's promise.
        return unsafe { real(number, handler) };
    };
    requested::exclusively(|| {
        let before = requested::load(place);
        let known = |answer| if answer == address() { before.handler() } else { answer };
        let mut action: libc::sigaction = kernels(number);
        action.sa_sigaction = handler;
        if RequestedAction::of(&action).is_none() || !requested::is_own() {
            // SAFETY: the caller's promise.
            return known(unsafe { real(number, handler) });
        }
        action.sa_flags = 0;
        requested::store(place, RequestedAction::of(&action).unwrap_or(before));
        // SAFETY: the hook's handler is one.
        let answer = unsafe { real(number, address()) };
        if answer == libc::SIG_ERR {
            requested::store(place, before);
            return answer;
        }
        let mut action = kernels(number);
        // If the signal has just arrived, a one-time handler is gone.
        if action.sa_sigaction == address() {
            action.sa_sigaction = handler;
            requested::store(place, RequestedAction::of(&action).unwrap_or(before));
            // SAFETY: an action of this process.
            unsafe { real_sigaction(number, ptr::from_ref(&in_front(&action)), ptr::null_mut()) };
        }
        known(answer)
    })
}

/// # Safety
/// As `signal(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn signal(number: c_int, handler: libc::sighandler_t) -> libc::sighandler_t {
    // SAFETY: the caller's promise.
    unsafe { by_handler(&SIGNAL, signal, number, handler) }
}

/// # Safety
/// As `signal(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn bsd_signal(number: c_int, handler: libc::sighandler_t) -> libc::sighandler_t {
    // SAFETY: the caller's promise.
    unsafe { by_handler(&BSD_SIGNAL, bsd_signal, number, handler) }
}

/// # Safety
/// As `signal(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn ssignal(number: c_int, handler: libc::sighandler_t) -> libc::sighandler_t {
    // SAFETY: the caller's promise.
    unsafe { by_handler(&SSIGNAL, ssignal, number, handler) }
}

/// # Safety
/// As `sysv_signal(3)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sysv_signal(number: c_int, handler: libc::sighandler_t) -> libc::sighandler_t {
    // SAFETY: the caller's promise.
    unsafe { by_handler(&SYSV_SIGNAL, sysv_signal, number, handler) }
}

/// The name of `signal` without BSD semantics.
///
/// # Safety
/// As `sysv_signal(3)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn __sysv_signal(number: c_int, handler: libc::sighandler_t) -> libc::sighandler_t {
    // SAFETY: the caller's promise.
    unsafe { by_handler(&DOUBLE_SYSV_SIGNAL, __sysv_signal, number, handler) }
}

/// Does the same as glibc's `sigset`, which would query the kernel while all signals are blocked.
///
/// # Safety
/// As `sigset(3)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sigset(number: c_int, disposition: libc::sighandler_t) -> libc::sighandler_t {
    if place(number).is_none() {
        // SAFETY: the caller's promise.
        return unsafe { by_handler(&SIGSET, sigset, number, disposition) };
    }
    let (mut set, mut before) = (MaybeUninit::zeroed(), MaybeUninit::zeroed());
    let (mut new, mut old) =
        (MaybeUninit::<libc::sigaction>::zeroed(), MaybeUninit::<libc::sigaction>::zeroed());
    // SAFETY: all-zero bytes are sets and actions; these functions write within them.
    unsafe {
        libc::sigaddset(set.as_mut_ptr(), number);
        let holds = disposition == SIG_HOLD;
        if !holds {
            (*new.as_mut_ptr()).sa_sigaction = disposition;
            if sigaction(number, new.as_ptr(), old.as_mut_ptr()) != 0 {
                return libc::SIG_ERR;
            }
        }
        let how = if holds { libc::SIG_BLOCK } else { libc::SIG_UNBLOCK };
        if libc::sigprocmask(how, set.as_ptr(), before.as_mut_ptr()) != 0 {
            return libc::SIG_ERR;
        }
        if libc::sigismember(before.as_ptr(), number) == 1 {
            return SIG_HOLD;
        }
        if holds && sigaction(number, ptr::null(), old.as_mut_ptr()) != 0 {
            return libc::SIG_ERR;
        }
        (*old.as_ptr()).sa_sigaction
    }
}
