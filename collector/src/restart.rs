//! Restarts this program, in the same process, if it crashes. The driver's library (NVML) has crashed in a
//! call that reads a GPU's performance monitor, and a gap of a second is better than an unwatched job.

use std::{
    ffi::{CString, OsString, c_char, c_int},
    io, mem,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    ptr,
    sync::atomic::{AtomicI64, AtomicPtr, AtomicU8, Ordering::Relaxed},
};

/// Signals of a crash.
const CRASHES: [c_int; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT];

/// The environment variable with the number of crashes.
const VARIABLE: &str = "XPU_TOP_COLLECTOR_CRASHES";

/// After this many crashes in a row the program ends, because it would crash again.
const MOST: u8 = 5;

/// After this many seconds without a crash, the count begins again.
const LONG: i64 = 600;

/// Crashes before this start, and the time of the start in monotonic seconds.
static COUNT: AtomicU8 = AtomicU8::new(0);
static START: AtomicI64 = AtomicI64::new(0);
static ARGUMENTS: AtomicPtr<*const c_char> = AtomicPtr::new(ptr::null_mut());
static ENVIRONMENT: AtomicPtr<*const c_char> = AtomicPtr::new(ptr::null_mut());
/// The digit in the environment that counts crashes.
static DIGIT: AtomicPtr<c_char> = AtomicPtr::new(ptr::null_mut());

/// Makes each later crash restart the program. Arguments that begin with `left_out` are only for the first
/// start. Must be called before other threads start.
pub(crate) fn on_crash(left_out: &str) {
    let crashes = std::env::var(VARIABLE).ok().and_then(|count| count.parse().ok()).unwrap_or(0);
    if crashes > 0 {
        // The kernel has named the process after the link that was executed. SAFETY: the kernel reads the
        // name.
        unsafe { libc::prctl(libc::PR_SET_NAME, c"xpu-collector".as_ptr()) };
    }
    COUNT.store(crashes, Relaxed);
    START.store(seconds(), Relaxed);
    let arguments =
        std::env::args_os().filter(|argument| !argument.as_bytes().starts_with(left_out.as_bytes()));
    let others = std::env::vars_os().filter(|(name, _)| name != VARIABLE);
    let set = others.map(|(mut name, value)| {
        name.push("=");
        name.push(value);
        name
    });
    let Some(counted) = text(format!("{VARIABLE}=0").into()).map(CString::into_raw) else { return };
    // SAFETY: the text has this length and ends with the digit.
    DIGIT.store(unsafe { counted.add(VARIABLE.len() + 1) }, Relaxed);
    ARGUMENTS.store(pointers(arguments, None), Relaxed);
    ENVIRONMENT.store(pointers(set, Some(counted)), Relaxed);
    for signal in CRASHES {
        // SAFETY: all zero is a valid sigaction; the handler makes only calls that are allowed in one.
        unsafe {
            let mut action: libc::sigaction = mem::zeroed();
            action.sa_sigaction = crashed as *const () as libc::sighandler_t;
            action.sa_flags = libc::SA_ONSTACK | libc::SA_NODEFER | libc::SA_RESETHAND;
            libc::sigaction(signal, &raw const action, ptr::null_mut());
        }
    }
}

/// Crashes before this start.
pub(crate) fn crashes() -> u8 {
    COUNT.load(Relaxed)
}

fn seconds() -> i64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live timespec; allowed in a signal handler.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec
}

extern "C" fn crashed(signal: c_int) {
    let before = if seconds() - START.load(Relaxed) >= LONG { 0 } else { COUNT.load(Relaxed) };
    let crashes = before.saturating_add(1);
    let (arguments, environment) = (ARGUMENTS.load(Relaxed), ENVIRONMENT.load(Relaxed));
    report(signal, crashes < MOST);
    if crashes < MOST {
        // SAFETY: the arrays and their texts live as long as the process, and only this handler writes the digit. These
        // calls are allowed in a signal handler.
        unsafe {
            *DIGIT.load(Relaxed) = (b'0' + crashes) as c_char;
            let mut none: libc::sigset_t = mem::zeroed();
            libc::sigemptyset(&raw mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
            libc::execve(c"/proc/self/exe".as_ptr(), arguments, environment);
        }
    }
    // The signal's action was reset, so the signal now ends the process, with a core dump if enabled. SAFETY:
    // as above.
    unsafe { libc::raise(signal) };
}

/// One line on stderr, which is the log.
fn report(signal: c_int, again: bool) {
    let mut name = [0_u8; 16];
    // SAFETY: the kernel writes the name and its zero, at most 16 bytes.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let length = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    let digits = [b'0' + (signal / 10) as u8, b'0' + (signal % 10) as u8];
    let end: &[u8] = if again { b"; it starts again\n" } else { b"; it ends, after too many crashes\n" };
    let parts: [&[u8]; 6] =
        [b"xpu-collector: signal ", &digits, b" in thread ", &name[..length], b": it crashed", end];
    for part in parts {
        // SAFETY: write only reads the part.
        unsafe { libc::write(libc::STDERR_FILENO, part.as_ptr().cast(), part.len()) };
    }
}

/// A null-terminated array for `exec`, which is never freed.
fn pointers(texts: impl Iterator<Item = OsString>, more: Option<*mut c_char>) -> *mut *const c_char {
    let known = texts.filter_map(|one| text(one).map(CString::into_raw)).chain(more);
    let all: Vec<*const c_char> = known.map(<*mut c_char>::cast_const).chain([ptr::null()]).collect();
    Box::leak(all.into_boxed_slice()).as_mut_ptr()
}

fn text(text: OsString) -> Option<CString> {
    CString::new(text.into_vec()).map_err(io::Error::from).ok()
}
