//! A thread of the hook. It is named `xpu-top`, blocks all signals, and has its own stack size.

use std::{
    arch::asm,
    ffi::{c_int, c_void},
    io::Write as _,
    mem::MaybeUninit,
    ptr,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use crate::{interpose::symbol, process::mask};

/// Stack size for its work, including calls into CUDA and CUPTI.
const STACK: usize = 512 << 10;

pub(crate) type Body = extern "C" fn(*mut c_void) -> *mut c_void;

/// Starts the thread. `false` if it cannot be created.
///
/// A thread inherits its creator's mask. All signals are blocked meanwhile, including faults. So a signal
/// that a program blocks everywhere, to read it by `signalfd`, never reaches this thread.
pub(crate) fn start(body: Body) -> bool {
    let before = mask::block_for_thread();
    let started = create(body);
    mask::set(before);
    started
}

/// The handle of the thread that was started last. The C library writes it before the thread runs.
static HANDLE: AtomicUsize = AtomicUsize::new(0);

/// Whether the calling thread is the one that was started last. Other preloads that interpose
/// `pthread_create` run code in it before its body, and that code may make intercepted calls.
pub(crate) fn is_last_started() -> bool {
    // SAFETY: pthread_self has no precondition.
    HANDLE.load(Relaxed) == (unsafe { libc::pthread_self() }) as usize
}

fn create(body: Body) -> bool {
    let mut attributes = MaybeUninit::uninit();
    // SAFETY: the first call initialises the attributes, and the last one destroys them; a handle is a word.
    unsafe {
        if libc::pthread_attr_init(attributes.as_mut_ptr()) != 0 {
            return false;
        }
        libc::pthread_attr_setdetachstate(attributes.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED);
        // If the C library refuses the size, its default is used.
        libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), STACK + thread_locals());
        let failed = libc::pthread_create(HANDLE.as_ptr().cast(), attributes.as_ptr(), body, ptr::null_mut());
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        failed == 0
    }
}

/// Sets the floating-point environment to its default. A thread inherits that of its creator: after
/// `feenableexcept`, the hook's own divisions would end the process.
fn reset_floating_point() {
    #[cfg(target_arch = "x86_64")]
    {
        /// The values with which a process begins (System V ABI): no exception traps.
        static CONTROL: u32 = 0x1f80;
        static CONTROL_X87: u16 = 0x037f;
        // SAFETY: both instructions only read the value.
        unsafe {
            asm!("ldmxcsr [{}]", in(reg) &raw const CONTROL, options(nostack, readonly));
            asm!("fldcw [{}]", in(reg) &raw const CONTROL_X87, options(nostack, readonly));
        }
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: zero is the value with which a process begins.
    unsafe {
        asm!("msr fpcr, xzr", options(nostack, nomem));
    }
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DISABLE` (glibc)
const NOT_NOW: c_int = 1;

/// Makes a call of the hook into a library. A cancelled thread of the program must not end in this call,
/// because it would be unwound through the hook; the thread ends in the program's next call.
#[inline]
pub(crate) fn uncancelled<T>(call: impl FnOnce() -> T) -> T {
    let mut before = 0;
    // SAFETY: it writes the previous state, which is restored below.
    unsafe { pthread_setcancelstate(NOT_NOW, &raw mut before) };
    let result = call();
    // SAFETY: as above; the place for the answer may be NULL.
    unsafe { pthread_setcancelstate(before, ptr::null_mut()) };
    result
}

/// The id of the calling thread.
pub(crate) fn id() -> u32 {
    // SAFETY: gettid has no precondition.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// The state of a thread of this process, as the kernel abbreviates it: `R` if it runs or is ready to run.
/// `None` without `/proc`, or if the thread has ended. Takes little of the stack.
pub(crate) fn state(thread: u32) -> Option<u8> {
    let (mut path, mut line) = ([0_u8; 48], [0_u8; 64]);
    write!(&mut path[..], "/proc/self/task/{thread}/stat\0").ok()?;
    // SAFETY: the path ends with NUL, and the kernel writes within `line`.
    let length = unsafe {
        let file = libc::open64(path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC);
        if file < 0 {
            return None;
        }
        let length = libc::read(file, line.as_mut_ptr().cast(), line.len());
        libc::close(file);
        length
    };
    let line = line.get(..usize::try_from(length).ok()?)?;
    // The name before it may contain any character.
    let name_end = line.iter().rposition(|&byte| byte == b')')?;
    line.get(name_end + 2).copied()
}

/// Prepares the calling thread, which is one of the hook's.
pub(crate) fn begin() {
    reset_floating_point();
    // SAFETY: the name ends with NUL and is short enough (prctl(2)).
    unsafe { libc::prctl(libc::PR_SET_NAME, c"xpu-top".as_ptr()) };
}

/// Bytes of thread-local storage of all libraries, which glibc takes from a thread's stack.
fn thread_locals() -> usize {
    unsafe extern "C" fn add(info: *mut libc::dl_phdr_info, _: usize, sum: *mut c_void) -> c_int {
        // SAFETY: the loader passes as many headers as it reports; the sum outlives the call.
        unsafe {
            for place in 0..usize::from((*info).dlpi_phnum) {
                let part = &*(*info).dlpi_phdr.add(place);
                if part.p_type == libc::PT_TLS {
                    *sum.cast::<usize>() += (part.p_memsz + part.p_align) as usize;
                }
            }
        }
        0
    }
    let mut sum = 0_usize;
    // SAFETY: the callback and its argument live through the call.
    unsafe { symbol::walk(Some(add), (&raw mut sum).cast()) };
    sum.next_multiple_of(1 << 12)
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread::spawn};

    use super::*;

    #[test]
    fn the_state_of_a_thread_is_the_kernels() {
        assert_eq!(state(id()), Some(b'R'));
        assert_eq!(state(u32::MAX), None);
        let (tells, asks) = mpsc::channel();
        let (_holds, rests) = mpsc::channel::<()>();
        let sleeper = spawn(move || {
            tells.send(id()).unwrap();
            let _ = rests.recv();
        });
        let thread = asks.recv().unwrap();
        while state(thread) != Some(b'S') {
            assert!(!sleeper.is_finished());
        }
    }
}
