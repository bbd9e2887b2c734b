//! The note of a fatal signal: brief before a handler of the program runs, complete when the process ends.

use std::{
    ffi::{c_int, c_void},
    mem::zeroed,
    ptr,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use xpu_wire::{
    ledger::{Claimed, ExitNote, REGISTERS},
    unit::Moment,
};

use super::entry::Call;
use crate::{
    exit_note::maps,
    process::{mask, peek},
};

/// Size of the area below the stack pointer that the kernel leaves unchanged.
const RED_ZONE: u64 = 128;

/// Bytes of a stack copied at once.
const PIECE: usize = 256;
const PAGE: usize = 4096;

/// The largest assumed size of a handler's frames.
const HANDLER_STACK: usize = 256 << 10;

/// The thread whose handler got the last noted signal, the begin of that handler's stack, and the interrupted
/// position. The holder of the claim on the note writes them.
static THREAD: AtomicUsize = AtomicUsize::new(0);
static FRAME: AtomicUsize = AtomicUsize::new(0);
/// The alternate stack in use; 0 for any other stack. After a jump out of the handler, such a stack may be
/// unmapped, so only code that runs on it reads it.
static STACK: AtomicUsize = AtomicUsize::new(0);
static CONTEXT: AtomicUsize = AtomicUsize::new(0);

/// Address of this thread's own storage.
#[cfg(target_arch = "x86_64")]
#[inline]
fn this_thread() -> usize {
    let at;
    // SAFETY: the ABI has the storage's address there.
    unsafe { std::arch::asm!("mov {}, fs:[0]", out(reg) at, options(nostack, readonly, preserves_flags)) };
    at
}

#[cfg(not(target_arch = "x86_64"))]
fn this_thread() -> usize {
    // SAFETY: pthread_self has no precondition.
    (unsafe { libc::pthread_self() }) as usize
}

/// Writes the brief note before a handler of the program runs. Makes no system call, and needs little stack.
///
/// # Safety
/// Called with what the kernel gave a handler.
#[inline]
pub(super) unsafe fn in_brief(
    words: &ExitNote,
    number: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
    frame: usize,
) {
    let Some(claimed) = words.fault.claim() else { return };
    // SAFETY: the caller's promise.
    unsafe { note(claimed, number, info, context, frame) };
    claimed.hand();
}

#[inline]
unsafe fn note(
    claimed: Claimed<'_>,
    number: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
    frame: usize,
) {
    // SAFETY: the caller's promise; the fields of `info` that are read exist for the signal that it
    // describes.
    let (code, address) = unsafe {
        let code = (*info).si_code;
        let sender = || u64::from((*info).si_pid().cast_unsigned());
        (code, if code > 0 { (*info).si_addr().addr() as u64 } else { sender() })
    };
    claimed.signal(number, code, address);
    THREAD.store(this_thread(), Relaxed);
    FRAME.store(frame, Relaxed);
    // SAFETY: the caller's promise.
    let alternate = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_stack };
    let is_on_it = frame.wrapping_sub(alternate.ss_sp.addr()) <= alternate.ss_size;
    STACK.store(if is_on_it { alternate.ss_sp.addr() } else { 0 }, Relaxed);
    CONTEXT.store(context.expose_provenance(), Relaxed);
    // SAFETY: the caller's promise.
    let registers = unsafe { registers(context) };
    claimed.registers(registers, registers[1].saturating_sub(RED_ZONE) & !7);
}

/// Writes the full note when the process ends or is likely to end. If an earlier signal's handler led here,
/// that signal is kept, because it is the cause.
///
/// # Safety
/// Called with what the kernel gave a handler.
pub(super) unsafe fn in_full(words: &ExitNote, call: &Call, ends: bool) {
    // SAFETY: the caller's promise.
    let is_sent = unsafe { (*call.info).si_code } <= 0;
    let again = is_inside(call.frame) || (is_sent && is_same_place(words, call.context));
    let kept = if again { words.fault.claim_handed() } else { None };
    let Some(claimed) = kept.or_else(|| words.fault.claim()) else { return };
    if kept.is_none() {
        // SAFETY: the caller's promise.
        unsafe { note(claimed, call.number, call.info, call.context, call.frame) };
    }
    // SAFETY: the claim is held.
    unsafe { note_rest(claimed) };
    if ends { claimed.end() } else { claimed.hand() }
}

/// Whether the program's handler of the last noted signal is running on this thread, further up on this
/// stack.
fn is_inside(stack: usize) -> bool {
    let frame = FRAME.load(Relaxed);
    let is_on_that_stack = stack < frame && frame - stack < HANDLER_STACK && stack >= STACK.load(Relaxed);
    THREAD.load(Relaxed) == this_thread() && is_on_that_stack
}

/// Whether this signal interrupted the same position as the last noted signal.
fn is_same_place(words: &ExitNote, context: *mut c_void) -> bool {
    // SAFETY: the context was passed to a handler, or is further up on the stack of a running one.
    let now = unsafe { registers(context) };
    THREAD.load(Relaxed) == this_thread() && words.fault.place() == (now[0], now[1])
}

/// Whether this runs inside the program's handler of the last noted signal: the handler's frame is as the
/// kernel made it, and its signal is still blocked.
pub(super) fn is_inside_a_blocking_handler(words: &ExitNote) -> bool {
    let here = 0_u8;
    let Some(number) = words.fault.handed_signal().filter(|_| is_inside(ptr::from_ref(&here).addr())) else {
        return false;
    };
    let context = ptr::with_exposed_provenance_mut(CONTEXT.load(Relaxed));
    is_same_place(words, context) && mask::now() & 1 << (number - 1) != 0
}

/// Completes the note when the program's handler ends the process. Called within that handler.
pub(super) extern "C" fn complete(words: usize) -> usize {
    // SAFETY: the page of an observer, which is never unmapped.
    let words = unsafe { &*ptr::with_exposed_provenance::<ExitNote>(words) };
    if let Some(claimed) = words.fault.claim_handed() {
        // SAFETY: the claim is held.
        unsafe { note_rest(claimed) };
        claimed.end();
    }
    0
}

/// Notes the time, the thread, its stack and the loaded code.
///
/// # Safety
/// The claim is held by the thread whose registers were noted.
unsafe fn note_rest(claimed: Claimed<'_>) {
    claimed.at(now());
    let mut name = [0; 16];
    // SAFETY: the buffer is as long as names are; gettid has no precondition.
    unsafe {
        libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr());
        claimed.thread(libc::syscall(libc::SYS_gettid) as u32, &name);
    }
    if cfg!(not(target_arch = "x86_64")) {
        // On other machines, the stack is not unwound.
        return;
    }
    let from = claimed.stack_from();
    let (stack, modules) = claimed.parts();
    stack.clear();
    // SAFETY: the claim is held.
    let Some(end) = (unsafe { maps::note(modules, from) }) else { return };
    let mut at = from;
    let mut piece = [0_u8; PIECE];
    while at < end {
        // Only up to the page's end, because a guard page may follow that the list of mappings does not show.
        let length = PIECE.min((end - at) as usize).min(PAGE - at as usize % PAGE);
        if peek::peek(at as usize, &mut piece[..length]) < length || !stack.push(&piece[..length]) {
            break;
        }
        at += length as u64;
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn registers(context: *mut c_void) -> [u64; REGISTERS] {
    use libc::{REG_R12, REG_R13, REG_R14, REG_R15, REG_RBP, REG_RBX, REG_RIP, REG_RSP};
    // SAFETY: the kernel gives a handler of SA_SIGINFO the context it interrupted.
    let all = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let of = |register: c_int| all[register as usize].cast_unsigned();
    // Listed one by one, because a loop would need stack for a copy.
    [of(REG_RIP), of(REG_RSP), of(REG_RBP), of(REG_RBX), of(REG_R12), of(REG_R13), of(REG_R14), of(REG_R15)]
}

/// On other machines nothing is unwound; the position and the stack pointer only distinguish signals.
#[cfg(target_arch = "aarch64")]
unsafe fn registers(context: *mut c_void) -> [u64; REGISTERS] {
    // SAFETY: as above.
    let all = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext };
    let mut registers = [0; REGISTERS];
    (registers[0], registers[1]) = (all.pc, all.sp);
    registers
}

/// The time, like `Moment::now`, which may panic.
fn now() -> Moment {
    // SAFETY: an all-zero timespec is valid storage, and clock_gettime writes within it.
    let time = unsafe {
        let mut time: libc::timespec = zeroed();
        libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut time);
        time
    };
    Moment((time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64))
}
