//! Exits: for `exit()` and `main`, glibc passes the code to its handlers; `_exit()` runs none, and is
//! interposed.

use std::ffi::{c_int, c_void};

use super::real::Real;

static REAL: Real = Real::new(c"_exit");

pub(super) fn find() {
    REAL.find(_exit as *const c_void);
}

/// # Safety
/// As the C library documents it: none.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn _exit(code: c_int) -> ! {
    end(code)
}

/// The same under its other name: C and POSIX have one each.
///
/// # Safety
/// As the C library documents it: none.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn _Exit(code: c_int) -> ! {
    end(code)
}

/// Makes no system call except the one that ends the process.
fn end(code: c_int) -> ! {
    super::exits(code);
    if let Some(at) = REAL.get() {
        // SAFETY: the function of this name has this signature (POSIX).
        let real = unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int) -> !>(at) };
        // SAFETY: it has no precondition.
        unsafe { real(code) }
    }
    loop {
        // SAFETY: this is all that `_exit` does, and has no precondition.
        unsafe { libc::syscall(libc::SYS_exit_group, code) };
    }
}
