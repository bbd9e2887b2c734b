//! The one subscription to callbacks. No callback is made; the subscription only has an owner.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::call::{Error, Fault, call, fault, put};

static TAKEN: AtomicBool = AtomicBool::new(false);

/// The handle of the only subscription.
const HANDLE: usize = 0xc0_0000;

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuptiSubscribe(
    subscriber: *mut *mut c_void,
    _callback: *const c_void,
    _data: *mut c_void,
) -> c_int {
    call(|| {
        if fault() == Fault::Held || TAKEN.swap(true, Ordering::AcqRel) {
            return Err(Error::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
        }
        // SAFETY: CUPTI requires a writable pointer.
        unsafe { put(subscriber, ptr::without_provenance_mut(HANDLE)) }
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuptiUnsubscribe(subscriber: *mut c_void) -> c_int {
    call(|| {
        if subscriber.addr() != HANDLE || !TAKEN.swap(false, Ordering::AcqRel) {
            return Err(Error::INVALID_PARAMETER);
        }
        Ok(())
    })
}

pub(crate) fn forget() {
    TAKEN.store(false, Ordering::Release);
}
