//! The C library's unwinder, `libgcc_s`. glibc loads it to cancel a thread.
//!
//! Only a panic of the hook needs an unwinder. The hook is not linked with one, neither dynamically nor
//! statically, because two unwinders in one process cannot read each other's contexts. The functions that the
//! standard library needs are jumps through [`SLOTS`], which are filled when the hook's thread begins, or at
//! the first panic. (Unit tests are programs, and use the normal functions.)

#[cfg(not(test))]
use std::arch::global_asm;
use std::{
    ffi::{CStr, c_int, c_void},
    mem::transmute,
    ptr,
    sync::atomic::{
        AtomicBool, AtomicPtr,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use crate::interpose::symbol;

const LIBGCC: &CStr = c"libgcc_s.so.1";

/// One line for each function that the standard library may call.
macro_rules! functions {
    ($count:literal: $($index:literal $name:ident)*) => {
        const NAMES: [&CStr; $count] = [$(crate::interpose::symbol::name!($name)),*];
        $(
            #[cfg(all(not(test), target_arch = "x86_64"))]
            global_asm!(
                concat!(".pushsection .text.", stringify!($name), ",\"ax\",@progbits"),
                concat!(".globl ", stringify!($name)),
                concat!(".hidden ", stringify!($name)),
                concat!(".type ", stringify!($name), ", @function"),
                concat!(stringify!($name), ":"),
                concat!("jmp qword ptr [rip + {slots} + 8 * ", stringify!($index), "]"),
                ".popsection",
                slots = sym SLOTS,
            );
            #[cfg(all(not(test), target_arch = "aarch64"))]
            global_asm!(
                concat!(".pushsection .text.", stringify!($name), ",\"ax\",%progbits"),
                concat!(".globl ", stringify!($name)),
                concat!(".hidden ", stringify!($name)),
                concat!(".type ", stringify!($name), ", %function"),
                concat!(stringify!($name), ":"),
                "adrp x16, {slots}",
                "add x16, x16, :lo12:{slots}",
                concat!("ldr x16, [x16, #8 * ", stringify!($index), "]"),
                "br x16",
                ".popsection",
                slots = sym SLOTS,
            );
        )*
    };
}

functions! { 15:
    0 _Unwind_Backtrace
    1 _Unwind_DeleteException
    2 _Unwind_FindEnclosingFunction
    3 _Unwind_GetCFA
    4 _Unwind_GetDataRelBase
    5 _Unwind_GetGR
    6 _Unwind_GetIP
    7 _Unwind_GetIPInfo
    8 _Unwind_GetLanguageSpecificData
    9 _Unwind_GetRegionStart
    10 _Unwind_GetTextRelBase
    11 _Unwind_Resume
    12 _Unwind_SetGR
    13 _Unwind_SetIP
    14 xpu_top_unwind_raise
}

/// The index of `_Unwind_RaiseException`.
const RAISE: usize = 14;

/// The functions' addresses, in the order of [`NAMES`].
static SLOTS: [AtomicPtr<c_void>; NAMES.len()] = [const { AtomicPtr::new(ptr::null_mut()) }; NAMES.len()];
static IS_FOUND: AtomicBool = AtomicBool::new(false);

// When a thread ends (`pthread_cancel`, `pthread_exit`: _UA_FORCE_UNWIND), the unwinder passes through the
// hook's frames as if they had no clean-up (_URC_CONTINUE_UNWIND). This may happen at any instruction, and
// nothing in the hook may stop it. The linker puts this routine before that of the standard library
// (`--wrap`, see `build.rs`).
#[cfg(all(not(test), target_arch = "x86_64"))]
global_asm!(
    ".globl __wrap_rust_eh_personality",
    ".hidden __wrap_rust_eh_personality",
    "__wrap_rust_eh_personality:",
    "test esi, 8",
    "jz 2f",
    "mov eax, 8",
    "ret",
    "2: jmp __real_rust_eh_personality",
);
#[cfg(all(not(test), target_arch = "aarch64"))]
global_asm!(
    ".globl __wrap_rust_eh_personality",
    ".hidden __wrap_rust_eh_personality",
    "__wrap_rust_eh_personality:",
    "tbz w1, #3, 2f",
    "mov w0, #8",
    "ret",
    "2: b __real_rust_eh_personality",
);

// Every panic of the hook begins to unwind here.
#[cfg(all(not(test), target_arch = "x86_64"))]
global_asm!(
    ".globl _Unwind_RaiseException",
    ".hidden _Unwind_RaiseException",
    ".type _Unwind_RaiseException, @function",
    "_Unwind_RaiseException:",
    "jmp {raise}",
    raise = sym raise,
);
#[cfg(all(not(test), target_arch = "aarch64"))]
global_asm!(
    ".globl _Unwind_RaiseException",
    ".hidden _Unwind_RaiseException",
    ".type _Unwind_RaiseException, %function",
    "_Unwind_RaiseException:",
    "b {raise}",
    raise = sym raise,
);

#[cfg_attr(test, allow(dead_code, reason = "a unit test has the unwinder of its own program"))]
unsafe extern "C-unwind" fn raise(exception: *mut c_void) -> c_int {
    find();
    let at = SLOTS[RAISE].load(Acquire);
    if at.is_null() {
        // Without an unwinder, a panic cannot continue. If this is the hook's thread, it stops and the
        // program continues; a thread of the program would stop too.
        crate::process::switch::panicked();
        loop {
            // SAFETY: pause has no precondition.
            unsafe { libc::pause() };
        }
    }
    // SAFETY: the function of this name has this signature (Itanium C++ ABI).
    let real = unsafe { transmute::<*mut c_void, unsafe extern "C-unwind" fn(*mut c_void) -> c_int>(at) };
    // SAFETY: the standard library passes its own exception.
    unsafe { real(exception) }
}

/// Fills the slots from the library if it is loaded, as in any process with C++. If not, a panic loads it. It
/// is not loaded in advance, because the C library would then reserve 64 MiB of address space for the hook's
/// thread.
pub(crate) fn find_loaded() {
    if !IS_FOUND.load(Acquire) {
        fill(|name| symbol::find_in(LIBGCC, name));
    }
}

fn find() {
    find_loaded();
    if IS_FOUND.load(Acquire) {
        return;
    }
    // SAFETY: the name ends with NUL. The library stays loaded, because the handle is never closed.
    let library = unsafe { libc::dlopen(LIBGCC.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
    if !library.is_null() {
        // SAFETY: the handle is open and the name NUL-terminated.
        fill(|name| unsafe { libc::dlsym(library, name.as_ptr()) });
    }
}

fn fill(at: impl Fn(&'static CStr) -> *mut c_void) {
    let mut all = true;
    for (name, slot) in NAMES.iter().zip(&SLOTS) {
        let at = at(if *name == NAMES[RAISE] { c"_Unwind_RaiseException" } else { name });
        slot.store(at, Relaxed);
        all &= !at.is_null();
    }
    IS_FOUND.store(all, Release);
}
