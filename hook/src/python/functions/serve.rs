//! The work that Python's main thread does for the hook, with the interpreter's lock, between two
//! instructions of the program.

use std::{
    ffi::{CStr, c_int, c_long, c_void},
    panic::catch_unwind,
    ptr,
    sync::atomic::{
        AtomicPtr, AtomicU32, AtomicU64,
        Ordering::{AcqRel, Relaxed, Release},
    },
};

use super::{
    AGAIN, BUILT_IN, ON, QUEUED, REPORT, WANTED,
    api::{FastCall, Method, Object, Python, Ran, caught},
    codes, forms, open,
};
use crate::{process::clock::monotonic, python::source};

const SOURCE: &CStr = source!("watch.py");

/// The hook's functions in the namespace of the source.
static METHODS: [(&CStr, Method); 6] = [
    method(c"enter", enter),
    method(c"leave", leave),
    method(c"collected", collected),
    method(c"watch", watch),
    method(c"forget", forget),
    method(c"profile", profile),
];

/// `PyTrace_CALL` and `PyTrace_RETURN`
const CALL: c_int = 0;
const RETURN: c_int = 3;

const fn method(name: &'static CStr, call: FastCall) -> (&'static CStr, Method) {
    (name, Method::new(name, call))
}

/// The result of a request.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) begun: u32,
    /// When the request was handled, in monotonic nanoseconds.
    pub(super) at: u64,
    /// Why no functions are watched; empty if they are.
    pub(super) refused: String,
    /// Unwatched functions, each with the reason.
    pub(super) missing: Vec<String>,
}

/// The namespace of the source, after the source has run; its `enter`; and the attached recording. They are
/// used only under the interpreter's lock.
static NAMESPACE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static MARK: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
pub(super) static ATTACHED: AtomicU32 = AtomicU32::new(0);
/// Since when functions are attached, in monotonic nanoseconds.
static SINCE: AtomicU64 = AtomicU64::new(0);

/// Stands for a recording's number while functions are being attached.
const HALF: u32 = u32::MAX;

/// Handles the request; Python's main thread calls this. Returns -1 with an exception set only if a signal
/// handler raised the exception; the program gets it.
pub(super) extern "C" fn serve(_: *mut c_void) -> c_int {
    QUEUED.store(false, Release);
    let Some(python) = Python::find() else { return 0 };
    // SAFETY: Python calls pending calls with its lock held and no exception set.
    let served = unsafe { python.untraced(|| catch_unwind(|| attach_or_detach(python))) };
    match served {
        Ok(Some(())) => 0,
        Ok(None) => -1,
        Err(_) => {
            crate::process::switch::panicked();
            0
        }
    }
}

/// Attaches or detaches functions, as requested. `None` if an exception of the program is pending.
///
/// # Safety
/// The calling thread holds the interpreter's lock, as for all that follows.
unsafe fn attach_or_detach(python: &Python) -> Option<()> {
    let wanted = WANTED.load(Relaxed);
    let attached = ATTACHED.load(Relaxed);
    if attached == wanted {
        let again = wanted != 0 && AGAIN.swap(false, Relaxed);
        // SAFETY: the caller's promise.
        return if again { unsafe { look_again(python, wanted) } } else { Some(()) };
    }
    // SAFETY: the caller's promise.
    unsafe {
        if (python.PyInterpreterState_Get)() != (python.PyInterpreterState_Main)() {
            refuse(wanted, "Python's main thread is in a subinterpreter");
            return Some(());
        }
        let namespace = namespace(python)?;
        if namespace.is_null() {
            refuse(wanted, "Python is out of memory, or an audit hook forbids it");
            return Some(());
        }
        if attached != 0 {
            call(python, namespace, c"end")?;
            ATTACHED.store(0, Relaxed);
        }
        if wanted == 0 {
            return Some(());
        }
        // If a signal handler interrupts this, functions are half attached: they must be detached and
        // attached again.
        ATTACHED.store(HALF, Relaxed);
        let lines = call(python, namespace, c"begin")?;
        ATTACHED.store(wanted, Relaxed);
        SINCE.store(monotonic(), Relaxed);
        ON.store(wanted, Release);
        if WANTED.load(Relaxed) != wanted {
            // The recording is no longer wanted; the request that ends it follows.
            ON.store(0, Relaxed);
        }
        report(wanted, SINCE.load(Relaxed), &lines);
    }
    Some(())
}

/// Also watches functions that were imported since functions were attached.
///
/// # Safety
/// As for [`attach_or_detach`].
unsafe fn look_again(python: &Python, begun: u32) -> Option<()> {
    // SAFETY: the caller's promise; functions are attached, so the source has run.
    let lines = unsafe {
        let namespace = namespace(python)?;
        call(python, namespace, c"begin")?
    };
    report(begun, SINCE.load(Relaxed), &lines);
    Some(())
}

/// Reports that no functions can be attached.
fn refuse(wanted: u32, why: &str) {
    // The request may have been withdrawn or replaced meanwhile.
    let _ = WANTED.compare_exchange(wanted, 0, Relaxed, Relaxed);
    report(wanted, monotonic(), why);
}

/// Reports the outcome. The first of `lines` says why functions are not watched, or is empty; the others are
/// the unwatched functions.
fn report(begun: u32, at: u64, lines: &str) {
    let (refused, missing) = lines.split_once('\n').unwrap_or((lines, ""));
    let missing = missing.lines().map(str::to_owned).collect();
    let report = Box::new(Report { begun, at, refused: refused.to_owned(), missing });
    let before = REPORT.swap(Box::into_raw(report), AcqRel);
    if !before.is_null() {
        // SAFETY: this function made the pointer by `Box::into_raw`, and after the swap only this thread has
        // it.
        drop(unsafe { Box::from_raw(before) });
    }
}

/// The namespace of the source, which runs once; null if there is no memory for it.
unsafe fn namespace(python: &Python) -> Option<Object> {
    let known = NAMESPACE.load(Relaxed);
    if !known.is_null() {
        return Some(known);
    }
    // SAFETY: the lock is held, and the methods are static. The given objects stay referenced as long as the
    // namespace exists, which is for ever.
    let made = unsafe {
        let all = forms().collect::<Vec<_>>().join("\n");
        let all = (python.PyUnicode_FromStringAndSize)(all.as_ptr().cast(), all.len() as isize);
        let mut given =
            vec![(c"BUILT_IN", (python.PyLong_FromLong)(BUILT_IN.len() as c_long)), (c"FORMS", all)];
        given.extend(METHODS.iter().map(|(name, method)| (*name, python.function(method))));
        // This object marks profile functions of the hook.
        let enter = given
            .iter()
            .find(|(name, _)| *name == c"enter")
            .map_or(ptr::null_mut(), |&(_, function)| function);
        MARK.store(enter, Relaxed);
        match python.run(SOURCE, &given) {
            Ran::Done(names) => names,
            Ran::HadNoRoom | Ran::Refused => ptr::null_mut(),
            Ran::Raised => return None,
        }
    };
    NAMESPACE.store(made, Relaxed);
    Some(made)
}

/// Calls a function of the source, and returns the text that it returns. `None` if it raised; the exception
/// belongs to the program.
unsafe fn call(python: &Python, namespace: Object, name: &CStr) -> Option<String> {
    // SAFETY: the lock is held, and the source has this function.
    unsafe {
        let function = (python.PyDict_GetItemString)(namespace, name.as_ptr());
        let answer = (python.PyObject_CallObject)(function, ptr::null_mut());
        if answer.is_null() {
            return None;
        }
        let report =
            if answer == python.none { String::new() } else { text(python, answer).unwrap_or_default() };
        (python.Py_DecRef)(answer);
        Some(report)
    }
}

unsafe fn text(python: &Python, object: Object) -> Option<String> {
    let mut length = 0;
    // SAFETY: the lock is held, and `object` is alive.
    unsafe {
        let at = (python.PyUnicode_AsUTF8AndSize)(object, &raw mut length);
        if at.is_null() {
            (python.PyErr_Clear)();
            return None;
        }
        let bytes = std::slice::from_raw_parts(at.cast(), usize::try_from(length).ok()?);
        Some(String::from_utf8_lossy(bytes).into_owned())
    }
}

/// The first arguments of a call, if there are enough.
unsafe fn taken<const N: usize>(arguments: *const Object, count: isize) -> Option<[Object; N]> {
    if arguments.is_null() || (count as usize) < N {
        return None;
    }
    // SAFETY: Python promises this many arguments.
    Some(unsafe { std::array::from_fn(|place| *arguments.add(place)) })
}

fn none() -> Object {
    // SAFETY: Python calls the functions below with its lock held.
    Python::find().map_or(ptr::null_mut(), |python| unsafe { python.new_none() })
}

/// `enter(code, ...)`: the code begins to run.
unsafe extern "C" fn enter(_: Object, arguments: *const Object, count: isize) -> Object {
    caught(|| {
        // SAFETY: as Python calls it.
        if let Some([code]) = unsafe { taken(arguments, count) }
            && let Some(number) = codes::number(code.addr())
        {
            open::enter(number);
        }
    });
    none()
}

/// `leave(code, ...)`: the code no longer runs.
unsafe extern "C" fn leave(_: Object, arguments: *const Object, count: isize) -> Object {
    caught(|| {
        // SAFETY: as Python calls it.
        if let Some([code]) = unsafe { taken(arguments, count) }
            && let Some(number) = codes::number(code.addr())
        {
            open::leave(number);
        }
    });
    none()
}

/// `collected(phase, info)`, which is in `gc.callbacks`.
unsafe extern "C" fn collected(_: Object, arguments: *const Object, count: isize) -> Object {
    caught(|| {
        // SAFETY: as Python calls it.
        let taken = unsafe { taken(arguments, count) };
        if let Some(python) = Python::find()
            && let Some([phase, info]) = taken
        {
            // SAFETY: as above; `info` is a dict with a number.
            unsafe {
                if text(python, phase).as_deref() == Some("start") {
                    open::collection_begins();
                } else {
                    let generation = (python.PyDict_GetItemString)(info, c"generation".as_ptr());
                    let number = if generation.is_null() { 0 } else { (python.PyLong_AsLong)(generation) };
                    (python.PyErr_Clear)();
                    open::collection_ends(u16::try_from(number).unwrap_or(0));
                }
            }
        }
    });
    none()
}

/// `watch(code, number)`
unsafe extern "C" fn watch(_: Object, arguments: *const Object, count: isize) -> Object {
    caught(|| {
        // SAFETY: as Python calls it.
        let taken = unsafe { taken(arguments, count) };
        if let Some(python) = Python::find()
            && let Some([code, number]) = taken
        {
            // SAFETY: as above.
            let number = unsafe { (python.PyLong_AsLong)(number) };
            if let Ok(number) = u16::try_from(number) {
                codes::watch(code.addr(), number);
            }
        }
    });
    none()
}

/// `forget()`
unsafe extern "C" fn forget(_: Object, _: *const Object, _: isize) -> Object {
    caught(|| {
        codes::forget();
    });
    none()
}

/// `profile(on)`: sets the hook's profile function on all threads that have none, or removes it again.
/// Returns the reason if it failed, else an empty text.
unsafe extern "C" fn profile(_: Object, arguments: *const Object, count: isize) -> Object {
    let set = || {
        let Some(python) = Python::find() else { return ptr::null_mut() };
        // SAFETY: as Python calls it, with its lock held: no other thread runs Python meanwhile, and none
        // ends.
        unsafe {
            let on = taken(arguments, count).is_some_and(|[on]| (python.PyLong_AsLong)(on) != 0);
            let mark = MARK.load(Relaxed);
            let ask = (python.PySys_GetObject)(c"getprofile".as_ptr());
            let own = (python.PyThreadState_Get)();
            let mut theirs = 0;
            let mut thread = (python.PyInterpreterState_ThreadHead)((python.PyInterpreterState_Get)());
            while !thread.is_null() {
                (python.PyThreadState_Swap)(thread);
                let set = (python.PyObject_CallObject)(ask, ptr::null_mut());
                if set.is_null() {
                    (python.PyErr_Clear)();
                } else {
                    if on && set == python.none {
                        (python.PyEval_SetProfile)(Some(profiled), mark);
                    } else if !on && set == mark {
                        (python.PyEval_SetProfile)(None, ptr::null_mut());
                    }
                    theirs += u32::from(on && set != python.none && set != mark);
                    (python.Py_DecRef)(set);
                }
                thread = (python.PyThreadState_Next)(thread);
            }
            (python.PyThreadState_Swap)(own);
            let why = match theirs {
                0 => String::new(),
                _ => format!(
                    "{theirs} threads have a profile function already (sys.setprofile, or a profiler); Python 3.12 has room for several"
                ),
            };
            (python.PyUnicode_FromStringAndSize)(why.as_ptr().cast(), why.len() as isize)
        }
    };
    caught(set).unwrap_or_else(none)
}

/// The profile function, which Python calls for all code that a thread runs.
unsafe extern "C" fn profiled(mark: Object, frame: Object, what: c_int, _: Object) -> c_int {
    caught(|| {
        if what != CALL && what != RETURN {
            return 0;
        }
        let Some(python) = Python::find() else { return 0 };
        // SAFETY: Python calls this with its lock held and a frame that runs; the code outlives its frame.
        unsafe {
            if WANTED.load(Relaxed) == 0 {
                // The function was not removed yet, or this is a child that was forked meanwhile.
                if mark == MARK.load(Relaxed) {
                    (python.PyEval_SetProfile)(None, ptr::null_mut());
                }
                return 0;
            }
            let code = (python.PyFrame_GetCode)(frame);
            let number = codes::number(code.addr());
            (python.Py_DecRef)(code);
            match number {
                Some(number) if what == CALL => open::enter(number),
                Some(number) => open::leave(number),
                None => {}
            }
        }
        0
    })
    .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::switch;

    #[test]
    fn python_gets_an_answer_from_a_callback_that_panics() {
        let code: Object = ptr::without_provenance_mut(codes::BROKEN);
        for callback in [enter, leave] {
            assert!(!switch::is_broken());
            // SAFETY: there is one argument, and it is not dereferenced.
            let answer = unsafe { callback(ptr::null_mut(), &raw const code, 1) };
            // There is no Python here, so there is no None.
            assert!(answer.is_null() && switch::is_broken());
            switch::clear_fault();
        }
    }
}
