//! The handler that the kernel calls. It decides where to continue. On x86-64 it *jumps* to the program's
//! handler, with the stack as the kernel made it; on other machines it calls that handler.

use std::ffi::{c_int, c_void};

use super::{aside, front, note, place, requested};
use crate::{exit_note::words, process::mask};

/// `BUS_MCEERR_AO`: broken memory was found, but no thread has accessed it.
const BROKEN_ELSEWHERE: c_int = 5;

/// `SEGV_MTEAERR`: a wrong tag was found some time after its use.
const WRONG_TAG: c_int = 8;

/// The kernel's arguments.
#[repr(C)]
pub(super) struct Call {
    pub(super) number: c_int,
    pub(super) info: *mut libc::siginfo_t,
    pub(super) context: *mut c_void,
    /// Where the stack of the handler begins.
    pub(super) frame: usize,
    errno: c_int,
    mask: u64,
}

/// # Safety
/// Called by the kernel, with `SA_SIGINFO`.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub(super) unsafe extern "C" fn entry(number: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    std::arch::naked_asm!(
        "endbr64",
        "push rdi",
        "push rsi",
        "push rdx",
        "lea rcx, [rsp + 24]",
        "call {route}",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jz 2f",
        // `rax` as the kernel leaves it: no vector registers hold arguments.
        "mov r11, rax",
        "xor eax, eax",
        "jmp r11",
        "2: ret",
        route = sym route,
    )
}

/// # Safety
/// As above.
#[cfg(not(target_arch = "x86_64"))]
pub(super) unsafe extern "C" fn entry(number: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: as the kernel gave them.
    let handler = unsafe { route(number, info, context, std::ptr::from_ref(&number).addr()) };
    if handler != libc::SIG_DFL {
        // SAFETY: the program set this handler for this signal; the kernel passes the context of `SA_SIGINFO`
        // to every handler.
        unsafe {
            let handler = std::mem::transmute::<usize, super::Handler>(handler);
            handler(number, info, context);
        }
    }
}

/// Where to continue: the address of the program's handler, or zero for the interrupted code.
unsafe extern "C" fn route(
    number: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
    frame: usize,
) -> usize {
    let Some(place) = place(number) else { return 0 };
    let asked = requested::load(place);
    // A handler cannot recover from an abort: when it returns, glibc ends the process and the hook gets no
    // further chance.
    if number == libc::SIGABRT || asked.handler() == libc::SIG_DFL {
        return note_fatal(number, info, context, frame);
    }
    let handler = requested::take(place).handler();
    if handler == libc::SIG_DFL {
        // The handler was a one-time handler, and another thread has used it.
        return note_fatal(number, info, context, frame);
    }
    if let Some(words) = words() {
        // SAFETY: as the kernel gave them.
        unsafe { note::in_brief(words, number, info, context, frame) };
    }
    handler
}

/// Writes the full note, because the process is likely to end. Returns where to continue.
#[cold]
#[inline(never)]
fn note_fatal(number: c_int, info: *mut libc::siginfo_t, context: *mut c_void, frame: usize) -> usize {
    // SAFETY: errno is this thread's own.
    let errno = unsafe { *libc::__errno_location() };
    let mask = mask::block_all();
    let call = Call { number, info, context, frame, errno, mask };
    let at = std::ptr::from_ref(&call).addr();
    let handler = aside::call(at, on_own_stack).unwrap_or_else(|| decide(&call));
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = call.errno };
    if handler != libc::SIG_DFL {
        mask::set(call.mask);
    }
    handler
}

extern "C" fn on_own_stack(call: usize) -> usize {
    // SAFETY: the pointer is that of `note_fatal`, which waits for this function.
    let call = unsafe { &*std::ptr::with_exposed_provenance::<Call>(call) };
    if requested::is_own()
        && let Some(words) = words()
    {
        let ends = place(call.number).is_some_and(|place| requested::load(place).handler() == libc::SIG_DFL);
        // SAFETY: as the kernel gave it.
        unsafe { note::in_full(words, call, ends) };
    }
    decide(call)
}

fn decide(call: &Call) -> usize {
    let handler = place(call.number).map_or(libc::SIG_DFL, |place| requested::take(place).handler());
    if handler == libc::SIG_DFL {
        // SAFETY: as the kernel gave it.
        unsafe { end_by(call.number, call.info) };
    }
    handler
}

/// Makes the default action follow when the handler returns: a fault repeats, a sent signal is sent again.
unsafe fn end_by(number: c_int, info: *mut libc::siginfo_t) {
    front::reset(number);
    // SAFETY: `info` is the kernel's; the calls have no other precondition.
    unsafe {
        let code = (*info).si_code;
        let came_late =
            matches!((number, code), (libc::SIGBUS, BROKEN_ELSEWHERE) | (libc::SIGSEGV, WRONG_TAG));
        if code > 0 && number != libc::SIGABRT && !came_late {
            return;
        }
        let (process, thread) = (libc::getpid(), libc::syscall(libc::SYS_gettid));
        // The signal is sent with its original arguments, which a process may do to itself.
        if libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, number, info) != 0 {
            libc::syscall(libc::SYS_tgkill, process, thread, number);
        }
    }
}
