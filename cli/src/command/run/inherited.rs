//! Inherited state that Rust's runtime changes before `main`: it opens closed standard streams, and resets an
//! ignored SIGPIPE to the default action when it starts a program. The program must inherit the original
//! state.

use std::{
    ffi::c_int,
    io,
    os::unix::process::CommandExt as _,
    process::Command,
    ptr,
    sync::atomic::{AtomicU8, Ordering::Relaxed},
};

const STREAMS: c_int = 3;

/// One bit for each standard stream that was closed, one bit if SIGPIPE was ignored, and one if SIGXFSZ was
/// not ignored.
static CHANGED: AtomicU8 = AtomicU8::new(0);
const IGNORED: u8 = 1 << STREAMS;
const LIMITED: u8 = 1 << (STREAMS + 1);

/// Runs before Rust's runtime.
extern "C" fn look() {
    let mut changed = 0;
    for stream in 0..STREAMS {
        // SAFETY: it only asks for the flags of a descriptor, which may be closed.
        if unsafe { libc::fcntl(stream, libc::F_GETFD) } < 0 {
            changed |= 1 << stream;
        }
    }
    // SAFETY: an all-zero action is valid storage, and with no new action the old one is only written there.
    unsafe {
        let mut action = std::mem::zeroed::<libc::sigaction>();
        libc::sigaction(libc::SIGPIPE, ptr::null(), &raw mut action);
        if action.sa_sigaction == libc::SIG_IGN {
            changed |= IGNORED;
        }
    }
    CHANGED.store(changed, Relaxed);
}

#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

/// If files may not grow (`ulimit -f`), a write fails without ending this process, because the program must
/// start.
pub(super) fn ignore_file_size_limit() {
    // SAFETY: no handler is installed: the signal is ignored.
    if unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) } == libc::SIG_DFL {
        CHANGED.fetch_or(LIMITED, Relaxed);
    }
}

/// Restores the original state for the started program.
pub(super) fn restore(command: &mut Command) {
    let changed = CHANGED.load(Relaxed);
    let restore = move || -> io::Result<()> {
        for stream in (0..STREAMS).filter(|stream| changed & 1 << stream != 0) {
            // SAFETY: only the program writes to this stream from now on, or this process an error that has
            // no reader.
            unsafe { libc::close(stream) };
        }
        if changed & IGNORED != 0 {
            // SAFETY: no handler is installed: the signal is ignored.
            unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        }
        if changed & LIMITED != 0 {
            // SAFETY: as above.
            unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_DFL) };
        }
        Ok(())
    };
    if changed != 0 {
        // SAFETY: two system calls, which may be made between fork and exec; here there is no fork.
        unsafe { command.pre_exec(restore) };
    }
}
