//! Functions whose address a program looks up: by `dlsym` on a library's handle, or from the driver and the
//! runtime (`cuGetProcAddress`, `cudaGetDriverEntryPoint`).
//!
//! ```text
//! dlsym(handle, name) ── name not in the table, RTLD_NEXT, RTLD_DEFAULT ──▶ the real one, by a jump
//!         └ else calls the real one ── the answer is a CUDA library's, the caller is not ──▶ the interposed one
//! ```
//!
//! The answer of the real `dlsym` depends on its return address, so a wrapper that calls it for all names
//! would change answers. If in doubt, the hook substitutes nothing.

mod answers;
pub mod questions;
mod table;

use std::{
    ffi::{CStr, c_char, c_void},
    ptr,
    sync::atomic::{
        AtomicU8, AtomicUsize,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use crate::{
    interpose::{
        guard::ErrnoKept,
        plugin,
        symbol::{self, Name},
    },
    python::optimizer::import,
};

/// [`xpu_wire::endpoint::variable::DLSYM`] and `DISABLE` as C strings.
const VARIABLE: &CStr = c"XPU_TOP_DLSYM";
const DISABLE: &CStr = c"XPU_TOP_DISABLE";

/// The real `dlsym`, or that of another preload behind the hook; 0 before the first lookup. Calls need it
/// before the hook's constructor has run.
static REAL: AtomicUsize = AtomicUsize::new(0);

static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);
/// The states of the setting; in the first, the environment could not be read yet.
const UNKNOWN: u8 = 0;
const FOLLOWS: u8 = 1;
const ALONE: u8 = 2;

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// Finds the real `dlsym` and reads the setting, when the hook is loaded or at the first lookup if that is
/// earlier.
pub(crate) fn begin() {
    real();
    if STATE.load(Relaxed) == UNKNOWN {
        look_at_environment();
    }
}

fn follows() -> bool {
    STATE.load(Relaxed) == FOLLOWS
}

fn real() -> usize {
    match REAL.load(Relaxed) {
        0 => find_real(),
        at => at,
    }
}

#[cold]
fn find_real() -> usize {
    let _errno = ErrnoKept::keep();
    // `dlsym` and `dlvsym` take a lock, and the caller may be a constructor or a signal handler. So they are
    // not used here.
    let at = match symbol::next_definition(&Name::new(c"dlsym")) {
        0 => nothing as *const () as usize,
        at => at,
    };
    REAL.store(at, Relaxed);
    at
}

/// Stands for a missing `dlsym`.
unsafe extern "C" fn nothing(_: *mut c_void, _: *const c_char) -> *mut c_void {
    ptr::null_mut()
}

#[cold]
fn look_at_environment() {
    // SAFETY: the C library's own variable; nobody changes it before the program runs.
    if unsafe { environ }.is_null() {
        return;
    }
    let is = |name: &CStr, value: &CStr| {
        // SAFETY: the name ends with NUL, and an entry of the environment is a string.
        unsafe {
            let found = libc::getenv(name.as_ptr());
            !found.is_null() && CStr::from_ptr(found) == value
        }
    };
    let stays_away = is(VARIABLE, c"0") || is(DISABLE, c"1");
    if !stays_away {
        table::make();
    }
    STATE.store(if stays_away { ALONE } else { FOLLOWS }, Release);
}

/// Calls the real `dlsym` from here.
///
/// # Safety
/// As the C library documents it.
pub(crate) unsafe fn ask(handle: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: a function of this signature (POSIX).
    let real = unsafe { std::mem::transmute::<usize, Dlsym>(real()) };
    // SAFETY: the caller's promise.
    let answer = unsafe { real(handle, name.as_ptr()) };
    // Prevents a tail call, because the answer depends on the return address.
    std::hint::black_box(answer)
}

/// Looks up a function's address by its name.
///
/// # Safety
/// As the C library documents it.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {passes_by}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "test rax, rax",
        "je 2f",
        "jmp rax",
        "2:",
        "mov rdx, qword ptr [rsp]",
        "jmp {follow}",
        ".cfi_endproc",
        passes_by = sym passes_by,
        follow = sym follow,
    )
}

/// Looks up a function's address by its name.
///
/// # Safety
/// As the C library documents it.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-32]!",
        ".cfi_def_cfa_offset 32",
        ".cfi_offset x29, -32",
        ".cfi_offset x30, -24",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "bl {passes_by}",
        "mov x16, x0",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        ".cfi_def_cfa_offset 0",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "cbz x16, 2f",
        "br x16",
        "2:",
        "mov x2, x30",
        "b {follow}",
        ".cfi_endproc",
        passes_by = sym passes_by,
        follow = sym follow,
    )
}

/// The real function for a lookup that passes through; 0 for a lookup that is handled here. Takes no lock and
/// makes no call, except the first time.
extern "C" fn passes_by(handle: *mut c_void, name: *const c_char) -> usize {
    let real = real();
    if STATE.load(Acquire) == UNKNOWN {
        look_at_environment();
    }
    // The answer for either handle depends on the caller.
    let is_by_scope = handle == libc::RTLD_NEXT || handle == libc::RTLD_DEFAULT;
    if !follows() || is_by_scope {
        return real;
    }
    // SAFETY: the caller promises a string.
    let is_followed = unsafe { table::find(name).is_some() || is_plugin(name) || import::is_entry(name) };
    if is_followed { 0 } else { real }
}

/// Whether the name is a symbol of NCCL's profiler plugins.
///
/// # Safety
/// The name is a string, or NULL.
#[inline]
unsafe fn is_plugin(name: *const c_char) -> bool {
    // SAFETY: a byte is read if the one before it does not end the string.
    unsafe {
        !name.is_null()
            && *name == b'n' as c_char
            && *name.add(1) == b'c' as c_char
            && plugin::version_of(CStr::from_ptr(name)).is_some()
    }
}

/// Handles a lookup of a name in the table. `caller` is the address to which the lookup returns.
unsafe extern "C" fn follow(handle: *mut c_void, name: *const c_char, caller: usize) -> *mut c_void {
    // SAFETY: a function of this signature (POSIX).
    let real = unsafe { std::mem::transmute::<usize, Dlsym>(real()) };
    // SAFETY: the caller keeps the C library's own preconditions.
    let answer = unsafe { real(handle, name) };
    if answer.is_null() {
        return answer;
    }
    let _errno = ErrnoKept::keep();
    // SAFETY: the caller promises a string.
    if unsafe { import::is_entry(name) } {
        import::begins(answer.expose_provenance());
        return answer;
    }
    // SAFETY: as above.
    if unsafe { is_plugin(name) } {
        // SAFETY: as above.
        return plugin::answer(answer, unsafe { CStr::from_ptr(name) }, caller);
    }
    // SAFETY: the caller promises a string.
    let Some(symbol) = (unsafe { table::find(name) }) else { return answer };
    let stand_in = answers::replacement_for(answer.expose_provenance(), caller, std::iter::once(symbol));
    stand_in.map_or(answer, ptr::with_exposed_provenance_mut)
}

#[cfg(test)]
mod tests {
    use xpu_wire::endpoint::variable;

    use super::*;

    #[test]
    fn the_variables_have_the_same_names_here() {
        assert_eq!((VARIABLE.to_str(), DISABLE.to_str()), (Ok(variable::DLSYM), Ok(variable::DISABLE)));
    }

    #[test]
    fn a_name_outside_the_table_is_answered_by_the_real_function() {
        begin();
        // SAFETY: the names are strings; RTLD_DEFAULT and the program are handles.
        unsafe {
            let program = libc::dlopen(ptr::null(), libc::RTLD_LAZY);
            for name in [c"getpid", c"", c"c", c"cu", c"cuda", c"xpu_top_no_library_has_this"] {
                for handle in [libc::RTLD_DEFAULT, program] {
                    let real = libc::dlsym(handle, name.as_ptr());
                    assert_eq!(dlsym(handle, name.as_ptr()), real, "{name:?}");
                }
            }
            assert!(!dlsym(libc::RTLD_NEXT, c"getpid".as_ptr()).is_null());
        }
    }
}
