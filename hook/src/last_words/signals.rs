//! Fatal signals, and SIGTERM: noted, then what would have happened happens.
//!
//! A handler is put in place once, where none of the program's ignores the signal. With the program's own one before it, that is
//! called as the kernel would have: with the same mask, on the same stack. Where there was none, the signal is taken again with
//! the default action, so that the process ends by it and its core is that of the fault. A handler that the program sets later
//! takes this one's place, and may call it. What runs here is async-signal-safe (`signal-safety(7)`), and needs little stack.

use std::{
    cell::UnsafeCell,
    ffi::{c_int, c_void},
    mem::{MaybeUninit, zeroed},
    ptr,
    sync::atomic::{
        AtomicBool,
        Ordering::{AcqRel, Acquire, Release},
    },
};

use xpu_shared::{
    ledger::{Claimed, LastWords, REGISTERS},
    unit::Moment,
};

use super::{maps, words};

type Handler = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

const FATAL: [c_int; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGABRT];
const SIGNALS: usize = FATAL.len() + 1;

/// `BUS_MCEERR_AO`: memory that was found to be broken, though nobody touched it yet.
const BROKEN_ELSEWHERE: c_int = 5;

/// What the kernel does not write below a stack pointer.
const RED_ZONE: u64 = 128;

/// Copied of a stack at once.
const PIECE: usize = 256;

/// What was in a signal's place before.
struct Before {
    is_set: AtomicBool,
    action: UnsafeCell<MaybeUninit<libc::sigaction>>,
}

// SAFETY: written before `is_set` says so, and never after.
unsafe impl Sync for Before {}

static BEFORE: [Before; SIGNALS] =
    [const { Before { is_set: AtomicBool::new(false), action: UnsafeCell::new(MaybeUninit::uninit()) } };
        SIGNALS];

static INSTALLED: AtomicBool = AtomicBool::new(false);

fn place(number: c_int) -> Option<&'static Before> {
    let index = if number == libc::SIGTERM {
        FATAL.len()
    } else {
        FATAL.iter().position(|&fatal| fatal == number)?
    };
    BEFORE.get(index)
}

fn before(number: c_int) -> Option<libc::sigaction> {
    let place = place(number)?;
    // SAFETY: it was written before it was said to be set.
    place.is_set.load(Acquire).then(|| unsafe { (*place.action.get()).assume_init() })
}

/// Whether the program's own handler of it has it blocked while it runs.
pub(super) fn blocks_itself(number: c_int) -> bool {
    before(number).is_some_and(|action| action.sa_flags & libc::SA_NODEFER == 0)
}

/// Once in a process and its forked children, which have the handlers of their parent.
pub(super) fn install() {
    if INSTALLED.swap(true, AcqRel) {
        return;
    }
    for number in FATAL {
        put(number, on_fatal);
    }
    put(libc::SIGTERM, on_asked);
}

fn put(number: c_int, handler: Handler) {
    let Some(place) = place(number) else { return };
    // SAFETY: all-zero bytes are a sigaction; both calls read and write within those given.
    unsafe {
        let mut old: libc::sigaction = zeroed();
        if libc::sigaction(number, ptr::null(), &raw mut old) != 0 || old.sa_sigaction == libc::SIG_IGN {
            return;
        }
        (*place.action.get()).write(old);
        place.is_set.store(true, Release);
        let kept = libc::SA_ONSTACK | libc::SA_NODEFER | libc::SA_RESTART;
        let alone = old.sa_sigaction == libc::SIG_DFL;
        let mut new = old;
        new.sa_sigaction = handler as *const () as libc::sighandler_t;
        new.sa_flags = libc::SA_SIGINFO | (old.sa_flags & kept) | if alone { libc::SA_ONSTACK } else { 0 };
        libc::sigaction(number, &raw const new, ptr::null_mut());
    }
}

unsafe extern "C" fn on_fatal(number: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives a handler of SA_SIGINFO both; errno is this thread's own.
    unsafe {
        let errno = *libc::__errno_location();
        let claimed = words().and_then(|words| note(words, number, info, context));
        *libc::__errno_location() = errno;
        pass_on(number, info, context, claimed);
    }
}

unsafe extern "C" fn on_asked(number: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: as above.
    unsafe {
        let errno = *libc::__errno_location();
        if let Some(words) = words() {
            let by = if (*info).si_code <= 0 { (*info).si_pid() } else { 0 };
            let (name, length) = comm_of(by);
            words.asked(by.cast_unsigned(), &name[..length], now());
        }
        *libc::__errno_location() = errno;
        pass_on(number, info, context, None);
    }
}

/// Does what would have been done.
///
/// # Safety
/// Called by a handler, with what the kernel gave it.
unsafe fn pass_on(
    number: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
    claimed: Option<Claimed<'_>>,
) {
    let Some(before) = before(number) else { return };
    // SAFETY: the caller's promise; the calls have no other precondition.
    unsafe {
        if before.sa_sigaction == libc::SIG_DFL || before.sa_sigaction == libc::SIG_IGN {
            if let Some(claimed) = claimed {
                claimed.end();
            }
            return end_by(number, info);
        }
        if let Some(claimed) = claimed {
            claimed.hand();
        }
        if before.sa_flags & libc::SA_RESETHAND != 0 {
            reset(number);
        }
        let handler = std::mem::transmute::<usize, Handler>(before.sa_sigaction);
        handler(number, info, context);
        if let Some(claimed) = claimed {
            // One that came back has mended what was wrong, or has the default action end it now.
            let mut current: libc::sigaction = zeroed();
            libc::sigaction(number, ptr::null(), &raw mut current);
            if current.sa_sigaction != libc::SIG_DFL {
                claimed.take_back();
            }
        }
    }
}

unsafe fn reset(number: c_int) {
    // SAFETY: an all-zero sigaction is the default action, with no flags.
    unsafe {
        let default: libc::sigaction = zeroed();
        libc::sigaction(number, &raw const default, ptr::null_mut());
    }
}

/// Has the default action follow when the handler returns: what faulted faults again, what was sent is sent again.
unsafe fn end_by(number: c_int, info: *mut libc::siginfo_t) {
    // SAFETY: `info` is the kernel's; the calls have no other precondition.
    unsafe {
        reset(number);
        let code = (*info).si_code;
        let faults_again = code > 0 && number != libc::SIGABRT && number != libc::SIGTERM;
        if faults_again && !(number == libc::SIGBUS && code == BROKEN_ELSEWHERE) {
            return;
        }
        let (process, thread) = (libc::getpid(), libc::syscall(libc::SYS_gettid));
        // With what it was sent with, which a process may do to itself.
        if libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, number, info) != 0 {
            libc::syscall(libc::SYS_tgkill, process, thread, number);
        }
    }
}

unsafe fn note(
    words: &LastWords,
    number: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) -> Option<Claimed<'_>> {
    let claimed = words.fault.claim()?;
    // SAFETY: as the handler was given them; what is read of `info` is there for the signal it tells of.
    unsafe {
        let code = (*info).si_code;
        let address = if code > 0 {
            (*info).si_addr().addr() as u64
        } else {
            u64::from((*info).si_pid().cast_unsigned())
        };
        claimed.signal(number, code, address, now());
        let mut name = [0; 16];
        libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr());
        claimed.thread(libc::syscall(libc::SYS_gettid) as u32, &name);
        note_stack(claimed, context);
    }
    Some(claimed)
}

#[cfg(target_arch = "x86_64")]
unsafe fn note_stack(claimed: Claimed<'_>, context: *mut c_void) {
    use libc::{REG_R12, REG_R13, REG_R14, REG_R15, REG_RBP, REG_RBX, REG_RIP, REG_RSP};
    const ORDER: [c_int; REGISTERS] =
        [REG_RIP, REG_RSP, REG_RBP, REG_RBX, REG_R12, REG_R13, REG_R14, REG_R15];
    // SAFETY: the kernel gives a handler of SA_SIGINFO the context it interrupted.
    let all = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let registers = ORDER.map(|register| all[register as usize].cast_unsigned());
    let from = registers[1].saturating_sub(RED_ZONE) & !7;
    claimed.registers(registers, from);
    let (stack, modules) = claimed.parts();
    stack.clear();
    // SAFETY: the claim is held.
    let Some(end) = (unsafe { maps::note(modules, from) }) else { return };
    let mut at = from;
    let mut piece = [0_u8; PIECE];
    while at < end {
        let length = PIECE.min((end - at) as usize);
        let source = ptr::with_exposed_provenance::<u8>(at as usize);
        // SAFETY: from `from` to `end` memory is mapped and may be read, as the kernel just said; it is this thread's own stack.
        unsafe { ptr::copy_nonoverlapping(source, piece.as_mut_ptr(), length) };
        if !stack.push(&piece[..length]) {
            break;
        }
        at += length as u64;
    }
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn note_stack(claimed: Claimed<'_>, _: *mut c_void) {
    claimed.registers([0; REGISTERS], 0);
}

/// `Moment::now` is this, and may panic.
fn now() -> Moment {
    // SAFETY: an all-zero timespec is valid storage, and clock_gettime writes within it.
    let time = unsafe {
        let mut time: libc::timespec = zeroed();
        libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut time);
        time
    };
    Moment((time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64))
}

/// What a process is called, as far as that can be read.
fn comm_of(process: libc::pid_t) -> ([u8; 16], usize) {
    let (mut name, mut path) = ([0; 16], *b"/proc/__________/comm\0");
    let mut digits = [0; 10];
    let (mut rest, mut first) = (process.unsigned_abs(), digits.len());
    while rest > 0 && first > 0 {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let number = &digits[first..];
    if process <= 0 {
        return (name, 0);
    }
    path[6..6 + number.len()].copy_from_slice(number);
    path[6 + number.len()..12 + number.len()].copy_from_slice(b"/comm\0");
    // SAFETY: the path ends with NUL; the buffer is as long as is said.
    let read = unsafe {
        let file = libc::open(path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC);
        if file < 0 {
            return (name, 0);
        }
        let read = libc::read(file, name.as_mut_ptr().cast(), name.len());
        libc::close(file);
        read
    };
    (name, usize::try_from(read).unwrap_or(0))
}
