//! Runs code before one of Python's built-in functions, invisibly: the object, its method and its hash stay
//! the same. Only the pointer for calls (`vectorcall` in `PyCFunctionObject`) leads here first.

use std::{
    ffi::{CStr, c_void},
    ptr,
    sync::atomic::{
        AtomicPtr,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use crate::python::functions::api::{Method, Object, Python, caught};

/// `vectorcallfunc`
pub(super) type Call = unsafe extern "C" fn(Object, *const Object, usize, Object) -> Object;

/// `PY_VECTORCALL_ARGUMENTS_OFFSET`
const OFFSET: usize = 1 << (usize::BITS - 1);

/// Indices of the words of a `PyCFunctionObject`, in Python 3.9 to 3.14, after the two words that every
/// object has.
const METHOD: usize = 2;
const SELF: usize = 3;
const CALL: usize = 6;

/// A built-in function that has code in front.
#[derive(Debug)]
pub(super) struct Slot {
    real: AtomicPtr<c_void>,
    /// The Python function that notes the exception; it gets the same arguments.
    note: AtomicPtr<c_void>,
}

impl Slot {
    pub(super) const fn new() -> Self {
        Self { real: AtomicPtr::new(ptr::null_mut()), note: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Makes `own` run before `function`, if that is the built-in function of this name with the expected
    /// layout. `own` calls [`Self::call`]. Keeps `note`.
    ///
    /// # Safety
    /// Both are objects; the calling thread holds the interpreter's lock.
    pub(super) unsafe fn chain(
        &self,
        python: &Python,
        function: Object,
        name: &CStr,
        note: Object,
        own: Call,
    ) -> bool {
        // SAFETY: the caller's promise. The type is first checked to be `PyCFunctionObject`, and the fields
        // that are read are compared with Python's answers.
        unsafe {
            let code = (python.PyCFunction_GetFunction)(function);
            if code.is_null() {
                (python.PyErr_Clear)();
                return false;
            }
            let words = function.cast::<*mut c_void>();
            let method = (*words.add(METHOD)).cast::<Method>();
            let is_itself = *words.add(SELF) == (python.PyCFunction_GetSelf)(function) && !method.is_null();
            if !is_itself
                || (*method).call.map(|call| call as *mut c_void) != Some(code)
                || !(*method).is_called(name)
            {
                return false;
            }
            let place = words.add(CALL);
            let there = *place;
            let known = python.vectorcall_of.is_none_or(|ask| ask(function) == there);
            if there.is_null() || !known || !self.real.load(Relaxed).is_null() {
                return false;
            }
            self.note.store(note, Relaxed);
            self.real.store(there, Release);
            *place = own as *mut c_void;
            if python.vectorcall_of.is_some_and(|ask| ask(function) != own as *mut c_void) {
                *place = there;
                return false;
            }
            true
        }
    }

    /// Notes the exception, then calls the original.
    ///
    /// # Safety
    /// Python calls this in place of the original, with the original's arguments.
    pub(super) unsafe fn call(
        &self,
        function: Object,
        arguments: *const Object,
        count: usize,
        names: Object,
    ) -> Object {
        let note = self.note.load(Relaxed);
        caught(|| {
            if let Some(python) = Python::find().filter(|_| !arguments.is_null() && names.is_null()) {
                // SAFETY: Python calls this with its lock held, and this many arguments.
                unsafe { python.untraced(|| report(python, note, arguments, count & !OFFSET)) };
            }
        });
        // SAFETY: this is the original function, with the arguments of this call.
        unsafe {
            let real = std::mem::transmute::<*mut c_void, Call>(self.real.load(Acquire));
            real(function, arguments, count, names)
        }
    }
}

/// # Safety
/// As [`Slot::call`].
unsafe fn report(python: &Python, note: Object, arguments: *const Object, count: usize) {
    // SAFETY: the caller's promise; a tuple owns the references that it is given.
    unsafe {
        let tuple = (python.PyTuple_New)(count as isize);
        if !tuple.is_null() {
            for index in 0..count {
                let argument = *arguments.add(index);
                (python.Py_IncRef)(argument);
                (python.PyTuple_SetItem)(tuple, index as isize, argument);
            }
            let answer = (python.PyObject_CallObject)(note, tuple);
            (python.Py_DecRef)(tuple);
            if !answer.is_null() {
                (python.Py_DecRef)(answer);
                return;
            }
        }
        (python.PyErr_Clear)();
    }
}
