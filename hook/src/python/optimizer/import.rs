//! Detects the import of PyTorch in a process that has not called CUDA, so that the steps of training on CPUs
//! are observed.
//!
//! Python looks up the entry point of PyTorch's extension module by `dlsym`. A thread of the hook then waits
//! until the optimizers are imported too, registers for their steps, and ends. The process becomes a rank
//! when an optimizer steps: agents, data loaders and compilers' helpers also import PyTorch, but never step.

use std::{
    ffi::{CStr, c_char, c_void},
    panic::catch_unwind,
    ptr,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

use super::attach::{attach_if_late, is_over};
use crate::{
    interpose::{guard, symbol},
    observe::observer::{self, Observer},
    process::{memory, switch, thread},
    publish::publisher,
};

/// [`xpu_wire::endpoint::variable::STEPS`] as a C string.
const STEPS: &CStr = c"XPU_TOP_STEPS";

/// The entry point of `torch._C`, and the folder of its file: many packages have a module of that name.
const ENTRY: &CStr = c"PyInit__C";
const FOLDER: &[u8] = b"torch";

/// Interval between checks while an import usually lasts, and after that time: an import from a slow file
/// system takes minutes.
const OFTEN: Duration = Duration::from_millis(20);
const USUALLY: Duration = Duration::from_secs(20);
const SELDOM: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_mins(10);

static IS_AWAITED: AtomicBool = AtomicBool::new(false);

/// Whether this is the name of the entry point of PyTorch's extension module.
///
/// # Safety
/// `name` is a C string, or NULL.
#[inline]
pub(crate) unsafe fn is_entry(name: *const c_char) -> bool {
    // SAFETY: a byte is read only if the one before it does not end the string.
    unsafe {
        !name.is_null()
            && *name == b'P' as c_char
            && *name.add(1) == b'y' as c_char
            && CStr::from_ptr(name) == ENTRY
    }
}

/// Starts the waiting thread if this is PyTorch's entry point: its import has begun on this thread of the
/// program.
#[cold]
pub(crate) fn begins(entry: usize) {
    if !is_in_folder(entry)
        || IS_AWAITED.swap(true, Relaxed)
        || switch::is_broken()
        || Observer::get().is_some()
    {
        return;
    }
    // SAFETY: the name ends with NUL; Python changes the environment under its lock, which this thread holds.
    let wanted = unsafe { libc::getenv(STEPS.as_ptr()) };
    // SAFETY: an entry of the environment is a string.
    if wanted.is_null() || unsafe { CStr::from_ptr(wanted) } == c"optimizer" {
        // A child that is forked meanwhile registers by itself.
        observer::register();
        thread::start(body);
    }
}

fn is_in_folder(entry: usize) -> bool {
    let mut is = false;
    symbol::each(|object| {
        let is_it = object.span.contains(entry);
        is = is_it && object.folder_name() == FOLDER;
        is_it
    });
    is
}

/// Forgets the waiting thread in a forked child, which does not have it.
pub(crate) fn forget() {
    IS_AWAITED.store(false, Relaxed);
}

/// The waiting thread. A panic in it turns observing off, and does not end the program.
extern "C" fn body(_: *mut c_void) -> *mut c_void {
    thread::begin();
    std::panic::set_hook(Box::new(|_| {}));
    guard::unobserved(|| {
        if let Err(payload) = catch_unwind(attach) {
            std::mem::forget(payload);
            switch::panicked();
        }
    });
    ptr::null_mut()
}

/// Makes Python's main thread register. If there is an observer, the hook's thread does this instead.
fn attach() {
    let began = Instant::now();
    while began.elapsed() < LONGEST && !is_over() && Observer::get().is_none() {
        if !memory::is_left(publisher::NEEDED_AT_FIRST) {
            return;
        }
        attach_if_late();
        std::thread::sleep(if began.elapsed() < USUALLY { OFTEN } else { SELDOM });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_has_the_same_name_here() {
        assert_eq!(STEPS.to_str(), Ok(xpu_wire::endpoint::variable::STEPS));
    }

    #[test]
    fn only_the_import_of_the_module_starts_following() {
        for (name, is) in
            [(c"PyInit__C", true), (c"PyInit__CE", false), (c"PyInit_", false), (c"P", false), (c"", false)]
        {
            // SAFETY: a string.
            assert_eq!(unsafe { is_entry(name.as_ptr()) }, is, "{name:?}");
        }
        // SAFETY: NULL is allowed.
        assert!(!unsafe { is_entry(ptr::null()) });
    }
}
