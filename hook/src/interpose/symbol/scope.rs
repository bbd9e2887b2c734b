//! Finds which of several definitions a caller is bound to.

mod users;

use std::{
    ffi::{CStr, c_char, c_void},
    ptr,
};

use super::{
    loaded::{self, Name, Object, Reference, Span},
    unload,
};
use crate::interpose::addresses;

/// An address that is certainly in the hook.
static HERE: u8 = 0;

/// An object with one of these symbols is an interposed library, or interposes one: its calls may be parts of
/// a call of the program.
static LIBRARIES: [Name<'static>; 9] = [
    Name::new(c"cudaGetDevice"),
    Name::new(c"cublasCreate_v2"),
    Name::new(c"cublasLtCreate"),
    Name::new(c"ncclGetUniqueId"),
    Name::new(c"cudaLaunchKernel"),
    Name::new(c"cublasGemmEx"),
    Name::new(c"cublasLtMatmul"),
    Name::new(c"ncclAllReduce"),
    Name::new(c"cuLaunchKernel"),
];

/// Maximum number of definitions of a function that are considered for a caller.
const COPIES: usize = 4;

/// Callers outside of any object (code generated at run time) are distinguished by page.
const PAGE: usize = 4096;

#[derive(Debug)]
pub(super) struct Found {
    pub(super) address: usize,
    /// The begin of the object that contains the target.
    pub(super) object: usize,
    pub(super) caller: Span,
    /// The caller is one of the libraries itself.
    pub(super) is_inner: bool,
    /// Whether there is only one definition, or it is known to which one the loader has bound the caller.
    pub(super) is_certain: bool,
}

struct Caller {
    span: Span,
    path: *const c_char,
    version: *const c_char,
    is_inner: bool,
    /// Whether it refers to the function itself, and not only through a pointer or another object.
    refers: bool,
}

/// The target of the call that returns to `address`. An earlier preload may be the caller, so only objects
/// loaded after the hook count. `marker` distinguishes a copy of the library from other interposers.
pub(super) fn find(name: &Name<'_>, marker: &Name<'_>, address: usize) -> Option<Found> {
    let mut caller = Caller {
        span: Span { from: address & !(PAGE - 1), length: PAGE },
        path: ptr::null(),
        version: ptr::null(),
        is_inner: false,
        refers: false,
    };
    let (mut first, mut copy, mut count, mut is_behind) = (None, None, 0, is_alone());
    loaded::each(|object| {
        if object.span.contains(address) {
            caller.span = object.span;
            caller.path = object.path;
            caller.is_inner = is_inner(object);
        }
        if is_own(object) {
            is_behind = true;
        } else if is_behind && let Some(at) = object.find(name) {
            count += 1;
            first.get_or_insert((at, object.span.from));
            if copy.is_none() && object.find(marker).is_some() {
                copy = Some(object.span.from);
            }
        }
        false
    });
    let (mut address, mut object) = first?;
    let mut is_certain = true;
    if count > 1 {
        let (at, is_known) = bound(name, &mut caller, count);
        is_certain = at.is_some() && is_known;
        if let Some(at) = at {
            address = at;
            object = object_of(at, marker).or(copy)?;
        }
    }
    Some(Found { address, object, caller: caller.span, is_inner: caller.is_inner, is_certain })
}

/// The function in the object that begins at `home`; if `home` is 0, in the first object that has the
/// function. 0 if there is none.
pub(super) fn find_in(name: &Name<'_>, home: usize) -> usize {
    let mut found = 0;
    loaded::each(|object| {
        if (home == 0 || object.span.from == home) && !is_own(object) {
            found = object.find(name).unwrap_or(0);
        }
        found != 0
    });
    found
}

/// The same in the object that was loaded from a file of this name.
pub(super) fn find_in_file(file: &CStr, name: &Name<'_>) -> usize {
    let mut found = 0;
    loaded::each(|object| {
        if object.file_name() == file.to_bytes() {
            found = object.find(name).unwrap_or(0);
        }
        found != 0
    });
    found
}

/// Whether a loaded object begins at this address.
pub(super) fn is_loaded(from: usize) -> bool {
    let mut is_there = false;
    loaded::each(|object| {
        is_there |= object.span.from == from;
        is_there
    });
    is_there
}

/// The definition of the next object after the hook. If the hook was opened later than the C library, the C
/// library's definition. 0 if there is none.
pub(crate) fn next_definition(name: &Name<'_>) -> usize {
    let (mut is_behind, mut first, mut next) = (is_alone(), 0, 0);
    loaded::each(|object| {
        if is_own(object) {
            is_behind = true;
        } else if next == 0
            && let Some(at) = object.find(name)
        {
            if is_behind {
                next = at;
            } else if object.file_name().starts_with(b"libc.so")
                || object.file_name().starts_with(b"libdl.so")
            {
                first = at;
            }
        }
        false
    });
    if next == 0 { first } else { next }
}

/// The begin of the object that contains this address; `None` if there is none.
pub(super) fn object_at(address: usize) -> Option<usize> {
    let mut found = None;
    loaded::each(|object| {
        found = object.span.contains(address).then_some(object.span.from);
        found.is_some()
    });
    found
}

/// Whether this object's calls may be parts of a call of the program.
pub(crate) fn is_inner(object: &Object) -> bool {
    LIBRARIES.iter().any(|library| object.find(library).is_some())
}

pub(crate) fn is_own(object: &Object) -> bool {
    object.span.contains((&raw const HERE).addr())
}

/// Whether this address is in the hook.
pub(crate) fn is_here(address: usize) -> bool {
    let mut is = false;
    loaded::each(|object| {
        is = is_own(object) && object.span.contains(address);
        is
    });
    is
}

/// Whether the hook is the program, as in unit tests: it is then loaded first, and contains interposed
/// libraries.
fn is_alone() -> bool {
    cfg!(test)
}

/// The copy of the library that contains this address; `None` if there is none.
fn object_of(address: usize, marker: &Name<'_>) -> Option<usize> {
    let mut found = None;
    loaded::each(|object| {
        let is_it = object.span.contains(address);
        if is_it && object.find(marker).is_some() {
            found = Some(object.span.from);
        }
        is_it
    });
    found
}

/// The definition, among `count`, to which the loader has bound the caller, and whether that is certain. It
/// is the first definition, in the version that the caller requires, in the global scope after the hook, else
/// in the scope of the object with which the caller was loaded.
///
/// The loader does not report that object. If the caller's other references do not show the scope, the
/// caller's own dependencies are used; they give the same result, unless the caller is itself a dependency of
/// the opened object.
#[cold]
fn bound(name: &Name<'_>, caller: &mut Caller, count: usize) -> (Option<usize>, bool) {
    loaded::each(|object| {
        let is_caller = object.span == caller.span;
        if is_caller {
            caller.version = object.version_wanted(name);
            caller.refers = users::refers(object, name);
        }
        is_caller
    });
    // SAFETY: RTLD_NEXT is a handle; the strings are NUL-terminated, and those of the caller are mapped
    // during its call.
    let global = unsafe { look_up(libc::RTLD_NEXT, name, caller.version) };
    if global.is_some() {
        return (global, true);
    }
    if !caller.refers
        && let Some(at) = users::bound(name, count)
    {
        return (Some(at), true);
    }
    bound_locally(name, caller, count)
}

/// The same for a caller for which the global scope has no definition.
fn bound_locally(name: &Name<'_>, caller: &Caller, count: usize) -> (Option<usize>, bool) {
    // SAFETY: the path is NUL-terminated, and mapped during a call of the object.
    if caller.path.is_null() || unsafe { *caller.path } == 0 {
        // It is in no object, or the program itself, which has only the global scope.
        return (None, false);
    }
    let by_references = bound_by_references(name, caller.span, count);
    // SAFETY: as in `bound`; with RTLD_NOLOAD nothing is loaded and no constructor runs. The caller and the
    // object that it is bound to stay loaded.
    unsafe {
        let handle = libc::dlopen(by_references.unwrap_or(caller.path), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if handle.is_null() {
            return (None, false);
        }
        let local = look_up(handle, name, caller.version);
        unload::close(handle);
        (local, by_references.is_some())
    }
}

/// The path of the copy to which the caller's references to other functions of the library are bound. One
/// reference suffices if it holds an address in one of the copies, and all copies have that function: that
/// copy is the first in the scope, so `name` is bound to it too. (A reference that is not bound yet holds a
/// stub of the caller. A reference to an interposed function holds the hook's.)
#[inline(never)]
fn bound_by_references(name: &Name<'_>, caller: Span, count: usize) -> Option<*const c_char> {
    let (mut user, mut copies, mut seen) = (None, [None; COPIES], 0);
    let (mut by_references, mut is_behind) = (None, is_alone());
    loaded::each(|object| {
        if object.span == caller {
            user = Some(*object);
        }
        if is_own(object) {
            is_behind = true;
        } else if is_behind && object.find(name).is_some() {
            if let Some(copy) = copies.get_mut(seen) {
                *copy = Some(*object);
            }
            seen += 1;
        }
        let Some(user) = user.filter(|_| seen == count) else { return false };
        let wanted = user.version_index(name);
        user.references(|Reference { name, version, to }| {
            let copies = || copies.iter().flatten();
            let Some(copy) = copies().find(|copy| copy.span.contains(to)) else { return false };
            let name = Name::new(name);
            let suffices = wanted.is_none_or(|wanted| wanted == version)
                && copy.find(&name) == Some(to)
                && copies().all(|copy| copy.find(&name).is_some());
            by_references = suffices.then_some(copy.path);
            suffices
        });
        true
    });
    by_references.filter(|_| count <= COPIES)
}

/// The loader's choice for a reference to this version: the first definition in the scope that has this
/// version or no version.
unsafe fn look_up(handle: *mut c_void, name: &Name<'_>, version: *const c_char) -> Option<usize> {
    // SAFETY: the caller's promise.
    let first = unsafe { addresses::ask(handle, name.text) };
    let at = if version.is_null() || is_for_any_version(first.addr(), name) {
        first
    } else {
        // SAFETY: the caller's promise.
        unsafe { libc::dlvsym(handle, name.text.as_ptr(), version) }
    };
    // The global scope has the hook's function, too.
    (!at.is_null() && !is_here(at.addr())).then(|| at.expose_provenance())
}

/// Whether the definition at this address has no version, like those of other preloads.
fn is_for_any_version(address: usize, name: &Name<'_>) -> bool {
    let mut is_any = false;
    loaded::each(|object| {
        let is_it = object.span.contains(address);
        is_any = is_it && object.is_for_any_version(name);
        is_it
    });
    is_any
}
