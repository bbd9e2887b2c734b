//! Exits: of `exit()` and `main` glibc tells its handlers the code; `_exit()` runs none, and is stood in front of.

use std::ffi::c_int;

/// # Safety
/// As the C library documents it: none.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn _exit(code: c_int) -> ! {
    end(code)
}

/// The same: C and POSIX have a name for it each.
///
/// # Safety
/// As the C library documents it: none.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn _Exit(code: c_int) -> ! {
    end(code)
}

fn end(code: c_int) -> ! {
    super::exits(code);
    loop {
        // SAFETY: this is all that `_exit` does, and has no precondition.
        unsafe { libc::syscall(libc::SYS_exit_group, code) };
    }
}
