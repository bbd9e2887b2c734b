//! Notes exit codes. After `exit()` and `main`, glibc passes the code to exit handlers; `_exit()` runs no
//! handlers, so it is interposed.

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

/// C's name of the same function; POSIX's is `_exit`.
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
        // SAFETY: `_exit` does only this, and it has no precondition.
        unsafe { libc::syscall(libc::SYS_exit_group, code) };
    }
}
