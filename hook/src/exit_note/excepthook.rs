//! Notes uncaught Python exceptions before Python's own functions print them. Those functions stay in place
//! unchanged.

mod slot;

use std::{
    ffi::{CStr, c_int, c_void},
    panic::catch_unwind,
    ptr,
    sync::atomic::{
        AtomicU8, AtomicU32,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
};

use slot::Slot;
use xpu_wire::unit::Moment;

use super::words;
use crate::{
    interpose::symbol::Visit,
    python::{
        functions::api::{Method, Object, Python, Ran, caught},
        source,
    },
};

const SOURCE: &CStr = source!("../python/guard.py", "excepthook.py");

static NOTE: Method = Method::new(c"note", note);

/// `sys.__excepthook__` and `threading.__excepthook__`.
static MAIN: Slot = Slot::new();
static THREADS: Slot = Slot::new();

unsafe extern "C" fn before_main(
    function: Object,
    arguments: *const Object,
    count: usize,
    names: Object,
) -> Object {
    // SAFETY: as Python calls it.
    unsafe { MAIN.call(function, arguments, count, names) }
}

unsafe extern "C" fn before_threads(
    function: Object,
    arguments: *const Object,
    count: usize,
    names: Object,
) -> Object {
    // SAFETY: as Python calls it.
    unsafe { THREADS.call(function, arguments, count, names) }
}

/// Progress: not requested; requested but not done; done for this process and its forked children.
static STATE: AtomicU8 = AtomicU8::new(NOT_ASKED);
const NOT_ASKED: u8 = 0;
const LATE: u8 = 1;
const ASKED: u8 = 2;
const DONE: u8 = 3;

/// Attempts without finding a Python; a Python that is loaded within the first seconds is found.
static LOOKS: AtomicU32 = AtomicU32::new(0);
const ENOUGH: u32 = 200;

/// Makes Python's main thread attach the functions. The thread of the first intercepted call requests this;
/// if that is the main thread, they are attached before the program's next instruction.
pub(super) fn attach_soon() {
    if STATE.compare_exchange(NOT_ASKED, LATE, AcqRel, Acquire).is_ok() {
        attach_if_late();
    }
}

/// Makes the request, if it is still due. If there is no Python, or Python's queue is full, a later turn
/// tries again.
pub(super) fn attach_if_late() {
    if STATE.load(Relaxed) != LATE {
        return;
    }
    let Some(_visit) = Visit::begin() else { return };
    let Some(python) = Python::find() else {
        if LOOKS.fetch_add(1, Relaxed) >= ENOUGH {
            STATE.store(DONE, Relaxed);
        }
        return;
    };
    if python.is_supported().is_ok()
        && STATE.compare_exchange(LATE, ASKED, AcqRel, Acquire).is_ok()
        && !python.call_soon(attach)
    {
        STATE.store(LATE, Relaxed);
    }
}

/// Prepares a forked child: it inherits attached functions, and repeats a pending request.
pub(super) fn forget() {
    let _ = STATE.fetch_update(Relaxed, Relaxed, |state| (state != DONE).then_some(NOT_ASKED));
}

/// Attaches the functions; Python's main thread calls this.
extern "C" fn attach(_: *mut c_void) -> c_int {
    if STATE.swap(DONE, AcqRel) == DONE {
        return 0;
    }
    let Some(python) = Python::find() else { return 0 };
    // SAFETY: Python calls pending calls with its lock held and no exception set.
    let attached = unsafe { python.untraced(|| catch_unwind(|| run(python))) };
    match attached {
        Ok(true) => 0,
        // A signal handler raised an exception meanwhile; it is left for the program.
        Ok(false) => -1,
        Err(_) => {
            crate::process::switch::panicked();
            0
        }
    }
}

/// Runs the source and attaches its functions. `false` if an exception of the program is pending.
///
/// # Safety
/// The calling thread holds the interpreter's lock.
unsafe fn run(python: &Python) -> bool {
    // SAFETY: the caller's promise; every object is checked before it is used. The namespace lives as long as
    // the functions in it.
    unsafe {
        if (python.PyInterpreterState_Get)() != (python.PyInterpreterState_Main)() {
            return true;
        }
        let names = match python.run(SOURCE, &[(c"note", python.function(&NOTE))]) {
            Ran::Done(names) => names,
            Ran::HadNoRoom => {
                // A later turn tries again.
                STATE.store(LATE, Release);
                return true;
            }
            Ran::Refused => return true,
            Ran::Raised => return false,
        };
        chain(python, names);
        let begin = (python.PyDict_GetItemString)(names, c"attach".as_ptr());
        let answer = (python.PyObject_CallObject)(begin, ptr::null_mut());
        if answer.is_null() {
            return python.had_no_room();
        }
        (python.Py_DecRef)(answer);
    }
    true
}

/// # Safety
/// The calling thread holds the interpreter's lock.
unsafe fn chain(python: &Python, names: Object) {
    // SAFETY: the caller's promise; every object is checked before it is used. The noting functions live as
    // long as the process.
    unsafe {
        let own = |name: &CStr| (python.PyDict_GetItemString)(names, name.as_ptr());
        let (of_main, of_thread) = (own(c"note_of_main"), own(c"note_of_thread"));
        let main = (python.PySys_GetObject)(c"__excepthook__".as_ptr());
        if !main.is_null() && !of_main.is_null() {
            MAIN.chain(python, main, c"excepthook", of_main, before_main);
        }
        let module = (python.PyImport_AddModule)(c"_thread".as_ptr());
        if !module.is_null() && !of_thread.is_null() {
            let threads = (python.PyObject_GetAttrString)(module, c"_excepthook".as_ptr());
            if !threads.is_null() {
                THREADS.chain(python, threads, c"_excepthook", of_thread, before_threads);
                (python.Py_DecRef)(threads);
            }
        }
        (python.PyErr_Clear)();
    }
}

/// `note(bytes)`
unsafe extern "C" fn note(_: Object, arguments: *const Object, count: isize) -> Object {
    let Some(python) = Python::find() else { return ptr::null_mut() };
    caught(|| {
        let (mut at, mut length) = (ptr::null_mut(), 0);
        if count <= 0 || arguments.is_null() {
            return;
        }
        // SAFETY: Python calls this with its lock held and this many arguments.
        unsafe {
            if (python.PyBytes_AsStringAndSize)(*arguments, &raw mut at, &raw mut length) == 0 {
                let bytes = std::slice::from_raw_parts(at.cast::<u8>(), usize::try_from(length).unwrap_or(0));
                if let Some(words) = words() {
                    words.raised(bytes, Moment::now());
                }
            } else {
                (python.PyErr_Clear)();
            }
        }
    });
    // SAFETY: Python calls this with its lock held.
    unsafe { python.new_none() }
}
