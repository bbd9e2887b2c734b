//! Registers with PyTorch for the steps of optimizers, as soon as PyTorch is loaded.

use std::{
    ffi::{CStr, c_int, c_void},
    panic::catch_unwind,
    ptr,
    sync::atomic::{
        AtomicBool, AtomicU32,
        Ordering::{AcqRel, Relaxed, Release},
    },
};

use xpu_wire::{frame::StepSource, id::Rank};

use crate::{
    interpose::{
        guard::{Entered, Mark},
        symbol::{Kind, Visit},
    },
    observe::{observer::Observer, steps},
    python::{
        functions::api::{Method, Object, Python, Ran, caught},
        optimizer::Optimizer,
        source,
    },
};

const SOURCE: &CStr = source!("../guard.py", "optimizer.py");

static STEPPED: Method = Method::new(c"stepped", stepped);
static ENDED: Method = Method::new(c"ended", ended);

/// Whether registration is finished for this process and its forked children, or impossible.
static DONE: AtomicBool = AtomicBool::new(false);
/// Whether the main thread has a request that it has not handled yet.
static ASKED: AtomicBool = AtomicBool::new(false);

/// Whether this PyTorch lacks a hook for the steps of all optimizers.
static IS_TOO_OLD: AtomicBool = AtomicBool::new(false);

/// Number of attempts.
static LOOKS: AtomicU32 = AtomicU32::new(0);
/// For about the first minute, in which programs import their modules, an attempt is made at every turn;
/// later at one turn in this many.
const OFTEN: u32 = 2_000;
const THEN_ONE_IN: u32 = 64;

/// Makes Python's main thread check whether PyTorch is loaded, without waiting. Called at every turn of the
/// hook's thread.
pub(crate) fn attach_if_late() {
    if DONE.load(Relaxed) || !steps::counts(StepSource::Optimizer) {
        return;
    }
    let looks = LOOKS.fetch_add(1, Relaxed);
    if looks > OFTEN && !looks.is_multiple_of(THEN_ONE_IN) {
        return;
    }
    let Some(_visit) = Visit::begin() else { return };
    let Some(python) = Python::find() else { return };
    if python.is_supported().is_ok() && !ASKED.swap(true, AcqRel) && !python.call_soon(attach) {
        ASKED.store(false, Relaxed);
    }
}

/// The reason why steps of optimizers cannot be seen, if there is one.
pub(crate) fn complaint() -> Option<&'static str> {
    const TOO_OLD: &str =
        "this PyTorch has no hook for the steps of all optimizers (2.1 has): steps are detected";
    IS_TOO_OLD.load(Relaxed).then_some(TOO_OLD)
}

/// Whether no further attempt is needed.
pub(super) fn is_over() -> bool {
    DONE.load(Relaxed)
}

/// Prepares a forked child: it inherits a registration, and repeats a pending request.
pub(super) fn forget() {
    ASKED.store(false, Relaxed);
}

/// Registers if PyTorch is loaded; Python's main thread calls this.
extern "C" fn attach(_: *mut c_void) -> c_int {
    ASKED.store(false, Release);
    if DONE.load(Relaxed) {
        return 0;
    }
    let Some(python) = Python::find() else { return 0 };
    // SAFETY: Python calls pending calls with its lock held and no exception set.
    match unsafe { python.untraced(|| catch_unwind(|| run(python))) } {
        Ok(true) => 0,
        // A signal handler raised an exception meanwhile; it is left for the program.
        Ok(false) => -1,
        Err(payload) => {
            std::mem::forget(payload);
            crate::process::switch::panicked();
            0
        }
    }
}

/// Runs the source, which registers. `false` if an exception of the program is pending.
///
/// # Safety
/// The calling thread holds the interpreter's lock.
unsafe fn run(python: &Python) -> bool {
    // SAFETY: the caller's promise; every object is checked before it is used.
    unsafe {
        if (python.PyInterpreterState_Get)() != (python.PyInterpreterState_Main)() || !is_imported(python) {
            return true;
        }
        let given = [(c"stepped", python.function(&STEPPED)), (c"ended", python.function(&ENDED))];
        let names = match python.run(SOURCE, &given) {
            Ran::Done(names) => names,
            Ran::HadNoRoom => return true,
            Ran::Refused => {
                DONE.store(true, Relaxed);
                return true;
            }
            Ran::Raised => return false,
        };
        let function = (python.PyDict_GetItemString)(names, c"attach".as_ptr());
        let answer = (python.PyObject_CallObject)(function, ptr::null_mut());
        if answer.is_null() {
            return python.had_no_room();
        }
        let mut length = 0;
        let text = (python.PyUnicode_AsUTF8AndSize)(answer, &raw mut length);
        let text = if text.is_null() {
            (python.PyErr_Clear)();
            &[][..]
        } else {
            std::slice::from_raw_parts(text.cast::<u8>(), length.max(0) as usize)
        };
        DONE.store(!text.is_empty(), Relaxed);
        IS_TOO_OLD.store(text == b"no hook", Relaxed);
        let is_attached = text == b"attached";
        (python.Py_DecRef)(answer);
        if !is_attached {
            (python.Py_DecRef)(names);
        }
    }
    true
}

/// Whether the import of the module has begun. The check costs two lookups, and runs no Python code.
unsafe fn is_imported(python: &Python) -> bool {
    // SAFETY: the caller holds the interpreter's lock; both references are borrowed.
    unsafe {
        let modules = (python.PySys_GetObject)(c"modules".as_ptr());
        !modules.is_null()
            && !(python.PyDict_GetItemString)(modules, c"torch.optim.optimizer".as_ptr()).is_null()
    }
}

/// `stepped(optimizer, parameter, name, counted, rank, size)`: two addresses, the optimizer's name, Kineto's
/// count, and this process's place in the job.
unsafe extern "C" fn stepped(_: Object, arguments: *const Object, count: isize) -> Object {
    let Some(python) = Python::find() else { return ptr::null_mut() };
    caught(|| {
        if arguments.is_null() || count < 6 {
            return;
        }
        // SAFETY: Python calls this with its lock held and this many arguments.
        unsafe {
            let address = |place| (python.PyLong_AsLong)(*arguments.add(place)) as usize;
            let mut length = 0;
            let name = (python.PyUnicode_AsUTF8AndSize)(*arguments.add(2), &raw mut length);
            let name = if name.is_null() {
                &[][..]
            } else {
                std::slice::from_raw_parts(name.cast(), length.max(0) as usize)
            };
            let counted = (python.PyLong_AsLong)(*arguments.add(3));
            let [rank, size] =
                [4, 5].map(|place| u32::try_from((python.PyLong_AsLong)(*arguments.add(place))).unwrap_or(0));
            let optimizer = Optimizer::new(address(0), address(1), str::from_utf8(name).unwrap_or_default());
            (python.PyErr_Clear)();
            let mark = Mark::new();
            if let Some(entered) = Entered::enter_even_off(Kind::Watched, &mark) {
                entered.leave(|lane| {
                    lane.observer().optimizers.place(Rank(rank), size);
                    lane.observer().optimizer_called(lane, &optimizer, u32::try_from(counted).unwrap_or(0));
                });
            }
        }
    });
    // SAFETY: Python calls this with its lock held.
    unsafe { python.new_none() }
}

/// `ended(optimizer)`: the address of an optimizer that the program has dropped.
unsafe extern "C" fn ended(_: Object, arguments: *const Object, count: isize) -> Object {
    let Some(python) = Python::find() else { return ptr::null_mut() };
    caught(|| {
        if arguments.is_null() || count < 1 {
            return;
        }
        // SAFETY: Python calls this with its lock held and this many arguments.
        let address = unsafe { (python.PyLong_AsLong)(*arguments) } as usize;
        if let Some(observer) = Observer::get() {
            observer.optimizers.ended(address);
        }
    });
    // SAFETY: as above.
    unsafe { python.new_none() }
}
