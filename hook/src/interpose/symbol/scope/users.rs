//! Finds the real caller of a tail call among the objects that refer to the function.

use std::{
    ffi::{CStr, c_char},
    ptr,
};

use super::{Caller, bound_locally, is_own, look_up};
use crate::interpose::symbol::loaded::{self, Name, Object};

/// Maximum number of objects that are considered as the real caller of a tail call.
const USERS: usize = 16;
/// Longest path and version of such an object, in bytes: a caller may have little stack.
const LONGEST_PATH: usize = 512;
const LONGEST_VERSION: usize = 64;

/// The definition to which all objects that refer to the function are bound. The apparent caller does not
/// refer to it: it called a function of another object whose last instruction jumps to this one (a tail
/// call), which leaves the return address of the first call. `None` if the objects are bound to different
/// definitions.
#[inline(never)]
pub(super) fn bound(name: &Name<'_>, count: usize) -> Option<usize> {
    let mut definition = None;
    for place in 0..=USERS {
        let (mut path, mut version) = ([0; LONGEST_PATH], [0; LONGEST_VERSION]);
        let Some(user) = user(name, place, &mut path, &mut version) else { break };
        if place == USERS || user.path.is_null() {
            return None;
        }
        // SAFETY: RTLD_NEXT is a handle, and the strings are NUL-terminated.
        let global = unsafe { look_up(libc::RTLD_NEXT, name, user.version) };
        let bound = global.or_else(|| bound_locally(name, &user, count).0)?;
        if *definition.get_or_insert(bound) != bound {
            return None;
        }
    }
    definition
}

/// The object at this place among those that refer to the function. Another thread may unload it, so its path
/// and version are copied. Without a path if they do not fit. `None` if there are fewer such objects.
fn user(name: &Name<'_>, place: usize, path: &mut [u8], version: &mut [u8]) -> Option<Caller> {
    let (mut seen, mut found) = (0, None);
    loaded::each(|object| {
        if is_own(object) || !refers(object, name) {
            return false;
        }
        seen += 1;
        if seen <= place {
            return false;
        }
        let wanted = object.version_wanted(name);
        // SAFETY: strings of a loaded object.
        let fits = unsafe { copy(object.path, path) && (wanted.is_null() || copy(wanted, version)) };
        found = Some(Caller {
            span: object.span,
            path: if fits { path.as_ptr().cast() } else { ptr::null() },
            version: if wanted.is_null() { wanted } else { version.as_ptr().cast() },
            is_inner: false,
            refers: true,
        });
        true
    });
    found
}

/// Copies a string with its end. `false` if it does not fit.
///
/// # Safety
/// `from` is a string, or NULL.
unsafe fn copy(from: *const c_char, to: &mut [u8]) -> bool {
    // SAFETY: the caller's promise.
    let bytes = if from.is_null() { &[0] } else { unsafe { CStr::from_ptr(from) }.to_bytes_with_nul() };
    let fits = bytes.len() <= to.len();
    if fits {
        to[..bytes.len()].copy_from_slice(bytes);
    }
    fits
}

pub(super) fn refers(object: &Object, name: &Name<'_>) -> bool {
    let mut is = false;
    object.references(|reference| {
        is = reference.name == name.text;
        is
    });
    is
}
