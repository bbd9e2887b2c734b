//! The functions of Python that the hook calls, if the process has a Python.

use std::{
    ffi::{CStr, c_char, c_int, c_long, c_void},
    panic::{AssertUnwindSafe, catch_unwind},
    ptr,
    sync::atomic::{
        AtomicPtr, AtomicU32, AtomicU64, AtomicUsize,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
};

use crate::{interpose::symbol, process::clock::monotonic};

/// A `PyObject *`; also for other pointers, such as a `PyThreadState`.
pub(crate) type Object = *mut c_void;

/// `METH_FASTCALL`
const FAST_CALL: c_int = 0x80;
/// `Py_file_input`
const FILE_INPUT: c_int = 257;

/// The minor version of the oldest supported Python, 3.9.
const OLDEST: u32 = 9;

/// `PyCFunction` with `METH_FASTCALL`
pub(crate) type FastCall = unsafe extern "C" fn(Object, *const Object, isize) -> Object;
/// `Py_tracefunc`
pub(crate) type Trace = unsafe extern "C" fn(Object, Object, c_int, Object) -> c_int;
type Pending = extern "C" fn(*mut c_void) -> c_int;

/// `PyMethodDef`
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Method {
    name: *const c_char,
    pub(crate) call: Option<FastCall>,
    flags: c_int,
    doc: *const c_char,
}

// SAFETY: the pointers are to static text.
unsafe impl Sync for Method {}

impl Method {
    pub(crate) const fn new(name: &'static CStr, call: FastCall) -> Self {
        Self { name: name.as_ptr(), call: Some(call), flags: FAST_CALL, doc: std::ptr::null() }
    }

    /// # Safety
    /// The method is one of Python, whose names end with NUL.
    pub(crate) unsafe fn is_called(&self, name: &CStr) -> bool {
        // SAFETY: the caller's promise.
        !self.name.is_null() && unsafe { CStr::from_ptr(self.name) } == name
    }
}

macro_rules! python {
    ($(fn $name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        #[derive(Clone, Copy, Debug)]
        #[allow(non_snake_case, reason = "they carry the names they have there")]
        pub(crate) struct Python {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            /// `_Py_NoneStruct`
            pub(crate) none: Object,
            /// `RecursionError` and `MemoryError`.
            no_room: [*const Object; 2],
            /// `Py_IsFinalizing`, under one of its two names.
            is_finalizing: Option<unsafe extern "C" fn() -> c_int>,
            /// Since 3.11.
            enter_tracing: Option<unsafe extern "C" fn(Object)>,
            /// `PyVectorcall_Function`: since 3.11.
            pub(crate) vectorcall_of: Option<unsafe extern "C" fn(Object) -> *mut c_void>,
            leave_tracing: Option<unsafe extern "C" fn(Object)>,
        }

        impl Python {
            fn look() -> Option<Self> {
                $(
                    let $name = look(concat!(stringify!($name), "\0"))?;
                    // SAFETY: the function of this name has this signature in every Python from 3.9 on.
                    let $name = unsafe {
                        std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>($name)
                    };
                )*
                let finalizing = look("Py_IsFinalizing\0").or_else(|| look("_Py_IsFinalizing\0"));
                let tracing = ["PyThreadState_EnterTracing\0", "PyThreadState_LeaveTracing\0"].map(look);
                // SAFETY: as above; these have no argument, and that of a thread's state.
                let (is_finalizing, [enter_tracing, leave_tracing]) = unsafe {
                    (
                        finalizing.map(|at| std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(at)),
                        tracing.map(|found| {
                            found.map(|at| std::mem::transmute::<*mut c_void, unsafe extern "C" fn(Object)>(at))
                        }),
                    )
                };
                // SAFETY: as above.
                let vectorcall_of = look("PyVectorcall_Function\0").map(|at| unsafe {
                    std::mem::transmute::<*mut c_void, unsafe extern "C" fn(Object) -> *mut c_void>(at)
                });
                let none = look("_Py_NoneStruct\0")?;
                let no_room = [look("PyExc_RecursionError\0")?.cast_const().cast(), look("PyExc_MemoryError\0")?.cast_const().cast()];
                Some(Self { $($name,)* none, no_room, is_finalizing, enter_tracing, vectorcall_of, leave_tracing })
            }
        }
    };
}

python! {
    fn Py_IsInitialized() -> c_int;
    fn Py_GetVersion() -> *const c_char;
    fn Py_AddPendingCall(Pending, *mut c_void) -> c_int;
    fn Py_CompileString(*const c_char, *const c_char, c_int) -> Object;
    fn PyEval_EvalCode(Object, Object, Object) -> Object;
    fn PyImport_AddModule(*const c_char) -> Object;
    fn PyImport_ImportModuleLevel(*const c_char, Object, Object, Object, c_int) -> Object;
    fn PyModule_GetDict(Object) -> Object;
    fn PyDict_New() -> Object;
    fn PyDict_Copy(Object) -> Object;
    fn PyDict_SetItemString(Object, *const c_char, Object) -> c_int;
    fn PyDict_GetItemString(Object, *const c_char) -> Object;
    fn PyCFunction_GetFunction(Object) -> *mut c_void;
    fn PyCFunction_GetSelf(Object) -> Object;
    fn PyCFunction_NewEx(*const Method, Object, Object) -> Object;
    fn PyTuple_New(isize) -> Object;
    fn PyTuple_SetItem(Object, isize, Object) -> c_int;
    fn PyObject_GetAttrString(Object, *const c_char) -> Object;
    fn PyObject_CallObject(Object, Object) -> Object;
    fn PyUnicode_FromStringAndSize(*const c_char, isize) -> Object;
    fn PyBytes_AsStringAndSize(Object, *mut *mut c_char, *mut isize) -> c_int;
    fn PyUnicode_AsUTF8AndSize(Object, *mut isize) -> *const c_char;
    fn PyLong_FromLong(c_long) -> Object;
    fn PyLong_AsLong(Object) -> c_long;
    fn PySys_GetObject(*const c_char) -> Object;
    fn PyErr_Clear();
    fn PyErr_ExceptionMatches(Object) -> c_int;
    fn Py_IncRef(Object);
    fn Py_DecRef(Object);
    fn PyFrame_GetCode(Object) -> Object;
    fn PyEval_SetProfile(Option<Trace>, Object);
    fn PyInterpreterState_Get() -> Object;
    fn PyInterpreterState_Main() -> Object;
    fn PyInterpreterState_ThreadHead(Object) -> Object;
    fn PyThreadState_Get() -> Object;
    fn PyThreadState_Next(Object) -> Object;
    fn PyThreadState_Swap(Object) -> Object;
}

/// The functions that were found, and the number of unloaded libraries at that time. Never freed, because
/// another thread may be using them.
static PYTHON: AtomicPtr<Python> = AtomicPtr::new(ptr::null_mut());
static KNOWN: AtomicU32 = AtomicU32::new(0);

/// The address of the first function, and when it was seen. A library that was loaded before the program's
/// start is complete.
static SEEN: AtomicUsize = AtomicUsize::new(0);
static SEEN_AT: AtomicU64 = AtomicU64::new(0);

/// A library is visible while its relocations are still in progress; they take milliseconds. After this time,
/// in nanoseconds, they are done.
const LOADED_IN: u64 = 2_000_000_000;

/// Looks for a Python that the program is linked with. Called when the hook is loaded, after all those
/// libraries.
pub(crate) fn look_for_python() {
    SEEN.store(symbol::find_anywhere(c"Py_IsInitialized").addr(), Relaxed);
}

// SAFETY: these are functions, and None, which lives as long as the process.
unsafe impl Send for Python {}
// SAFETY: as above.
unsafe impl Sync for Python {}

impl Python {
    /// `None` if the process has no `CPython`, which may still be loaded later.
    pub(crate) fn find() -> Option<&'static Self> {
        let unloaded = symbol::generation();
        if KNOWN.load(Acquire) == unloaded {
            // SAFETY: it is never freed.
            if let Some(known) = unsafe { PYTHON.load(Acquire).as_ref() } {
                return Some(known);
            }
        }
        Self::find_again(unloaded)
    }

    #[cold]
    fn find_again(unloaded: u32) -> Option<&'static Self> {
        let at = symbol::find_anywhere(c"Py_IsInitialized").addr();
        if SEEN.swap(at, AcqRel) != at {
            SEEN_AT.store(monotonic(), Release);
        }
        let seen_at = SEEN_AT.load(Acquire);
        if at == 0 || seen_at > 0 && monotonic() - seen_at < LOADED_IN {
            PYTHON.store(ptr::null_mut(), Release);
            return None;
        }
        // SAFETY: it is never freed.
        let known = unsafe { PYTHON.load(Acquire).as_ref() };
        let known = known.filter(|known| known.Py_IsInitialized as usize == at);
        let found = match known {
            Some(known) => known,
            None => Box::leak(Box::new(Self::look()?)),
        };
        PYTHON.store(ptr::from_ref(found).cast_mut(), Release);
        KNOWN.store(unloaded, Release);
        Some(found)
    }

    /// Whether this Python is supported and running. Any thread may call this, without the interpreter's
    /// lock.
    pub(crate) fn is_supported(&self) -> Result<(), &'static str> {
        // SAFETY: both only read a word.
        let (initialized, finalizing) =
            unsafe { ((self.Py_IsInitialized)(), self.is_finalizing.map_or(0, |ask| ask())) };
        if initialized == 0 || finalizing != 0 {
            return Err("Python is not running");
        }
        // SAFETY: a static text.
        let version = unsafe { CStr::from_ptr((self.Py_GetVersion)()) }.to_string_lossy();
        if version.contains("free-threading") {
            return Err("this Python has no global lock (free-threaded), which is not supported");
        }
        let minor = version
            .strip_prefix("3.")
            .and_then(|rest| rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse::<u32>().ok());
        if minor.is_none_or(|minor| minor < OLDEST) {
            return Err("this Python is older than 3.9");
        }
        Ok(())
    }

    /// Makes the main thread call `what` between two instructions. `false` if the queue is full.
    pub(crate) fn call_soon(&self, what: Pending) -> bool {
        // SAFETY: Python is running, as was just checked. Any thread may call this; the only lock of Python's
        // that it waits for is that of a list.
        unsafe { (self.Py_AddPendingCall)(what, std::ptr::null_mut()) == 0 }
    }

    /// Runs `body`, hidden from debuggers and profilers if Python can do that.
    ///
    /// # Safety
    /// The calling thread holds the interpreter's lock.
    pub(crate) unsafe fn untraced<T>(&self, body: impl FnOnce() -> T) -> T {
        let (Some(enter), Some(leave)) = (self.enter_tracing, self.leave_tracing) else { return body() };
        // SAFETY: the caller's promise; the state is this thread's own.
        unsafe {
            let thread = (self.PyThreadState_Get)();
            enter(thread);
            let result = body();
            leave(thread);
            result
        }
    }

    /// Runs a source file of the hook. The file sees `given` in addition to its own copy of Python's built-in
    /// names, which the program may have replaced.
    ///
    /// # Safety
    /// As [`Self::untraced`]; `given` has objects that stay referenced, or null where none could be made.
    pub(crate) unsafe fn run(&self, source: &CStr, given: &[(&CStr, Object)]) -> Ran {
        // SAFETY: the caller's promise; every object is checked before it is used.
        unsafe {
            let code = (self.Py_CompileString)(source.as_ptr(), c"<xpu-top>".as_ptr(), FILE_INPUT);
            let names = if code.is_null() { code } else { (self.PyDict_New)() };
            let set = |names, &(name, value): &(&CStr, Object)| {
                !value.is_null() && (self.PyDict_SetItemString)(names, name.as_ptr(), value) == 0
            };
            let builtins = if names.is_null() { names } else { self.builtins() };
            let is_ready =
                set(names, &(c"__builtins__", builtins)) && given.iter().all(|one| set(names, one));
            (self.Py_DecRef)(builtins);
            if !is_ready {
                let had_no_room = self.had_no_room();
                (self.PyErr_Clear)();
                (self.Py_DecRef)(code);
                (self.Py_DecRef)(names);
                return if had_no_room { Ran::HadNoRoom } else { Ran::Refused };
            }
            let done = (self.PyEval_EvalCode)(code, names, names);
            (self.Py_DecRef)(code);
            if done.is_null() {
                return if self.had_no_room() { Ran::HadNoRoom } else { Ran::Raised };
            }
            (self.Py_DecRef)(done);
            Ran::Done(names)
        }
    }

    /// A copy of Python's built-in names. Its `__import__` is Python's own, because the program may have
    /// replaced that: to count imports, or to forbid them. Null if it cannot be made.
    ///
    /// # Safety
    /// As [`Self::untraced`].
    unsafe fn builtins(&self) -> Object {
        // SAFETY: the caller's promise; the module and its dictionary are borrowed.
        unsafe {
            let module = (self.PyImport_AddModule)(c"builtins".as_ptr());
            let all = if module.is_null() { module } else { (self.PyModule_GetDict)(module) };
            let own = if all.is_null() { all } else { (self.PyDict_Copy)(all) };
            let import = if own.is_null() { own } else { self.function(&IMPORT) };
            let is_set =
                !import.is_null() && (self.PyDict_SetItemString)(own, c"__import__".as_ptr(), import) == 0;
            (self.Py_DecRef)(import);
            if is_set {
                return own;
            }
            (self.Py_DecRef)(own);
            ptr::null_mut()
        }
    }

    /// Whether the hook's source raised because the stack or the memory is used up. Such an exception does
    /// not belong to the program, and is cleared.
    ///
    /// # Safety
    /// As [`Self::untraced`].
    pub(crate) unsafe fn had_no_room(&self) -> bool {
        // SAFETY: the caller's promise; Python sets both variables before it runs any code.
        unsafe {
            let had_none = self.no_room.iter().any(|&kind| (self.PyErr_ExceptionMatches)(*kind) != 0);
            if had_none {
                (self.PyErr_Clear)();
            }
            had_none
        }
    }

    /// Makes a function of the hook into a Python object.
    ///
    /// # Safety
    /// As [`Self::untraced`].
    pub(crate) unsafe fn function(&self, method: &'static Method) -> Object {
        // SAFETY: the caller's promise; the method is static.
        unsafe { (self.PyCFunction_NewEx)(method, std::ptr::null_mut(), std::ptr::null_mut()) }
    }

    /// Python's `None`, as a function's result.
    ///
    /// # Safety
    /// As [`Self::untraced`].
    pub(crate) unsafe fn new_none(&self) -> Object {
        // SAFETY: None is an object.
        unsafe { (self.Py_IncRef)(self.none) };
        self.none
    }
}

/// The outcome of [`Python::run`].
pub(crate) enum Ran {
    /// The namespace, which lives as long as the process.
    Done(Object),
    /// There is no stack or memory for it now.
    HadNoRoom,
    /// The program forbids it (`sys.addaudithook`).
    Refused,
    /// The exception belongs to the program: the source only defines functions, so it fails only if a signal
    /// handler raises.
    Raised,
}

static IMPORT: Method = Method::new(c"__import__", import);

/// `__import__(name, ...)`, for modules without a package. An import that fails gives `None`.
unsafe extern "C" fn import(_: Object, arguments: *const Object, count: isize) -> Object {
    let Some(python) = Python::find() else { return ptr::null_mut() };
    // SAFETY: Python calls this with its lock held and this many arguments.
    let module = caught(|| unsafe {
        let name = if count > 0 {
            (python.PyUnicode_AsUTF8AndSize)(*arguments, ptr::null_mut())
        } else {
            ptr::null()
        };
        let none = ptr::null_mut();
        let module = if name.is_null() {
            none
        } else {
            (python.PyImport_ImportModuleLevel)(name, none, none, none, 0)
        };
        if module.is_null() {
            (python.PyErr_Clear)();
        }
        module
    });
    match module {
        Some(module) if !module.is_null() => module,
        // SAFETY: as above.
        _ => unsafe { python.new_none() },
    }
}

/// Catches panics, because a function that Python calls must not unwind into Python.
pub(crate) fn caught<T>(body: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(body)).map_err(|_payload| crate::process::switch::panicked()).ok()
}

/// A function or variable of Python; `name` ends with NUL.
fn look(name: &str) -> Option<*mut c_void> {
    let name = CStr::from_bytes_with_nul(name.as_bytes()).ok()?;
    // `dlsym` is not used, because it allocates from the C library to report a failure.
    let at = symbol::find_anywhere(name);
    (!at.is_null()).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::switch;

    #[test]
    fn a_callback_that_panics_ends_the_observing_and_returns() {
        assert_eq!(caught(|| 7), Some(7));
        assert!(!switch::is_broken());
        let panics = switch::panics();
        assert_eq!(caught::<()>(|| panic!("on purpose")), None);
        assert_eq!((switch::panics(), switch::is_broken()), (panics + 1, true));
        switch::clear_fault();
    }
}
