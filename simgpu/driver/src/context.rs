//! Contexts. A device has only its primary context, which is also the runtime's. A thread of the driver has no
//! current context until it sets one.

use std::cell::RefCell;
use std::ffi::c_int;

use simgpu_engine::driver::{Driver, driver};

use crate::call::{Error, call, put};
use crate::{device, work};

/// The handle of the context of device 0, and the distance to the next one.
const FIRST: usize = 0xc700_0000;
const STEP: usize = 64;

thread_local! {
    /// The devices below the current one on this thread's stack of contexts; -1 for none.
    static BELOW: RefCell<Vec<c_int>> = const { RefCell::new(Vec::new()) };
}

fn timeline() -> Result<Driver, Error> {
    driver().ok_or(Error::NOT_INITIALIZED)
}

fn handle(device: c_int) -> usize {
    usize::try_from(device).map_or(0, |device| FIRST + device * STEP)
}

/// The device of a context; -1 of NULL.
fn device_of(context: usize) -> Result<c_int, Error> {
    if context == 0 {
        return Ok(-1);
    }
    let offset = context.checked_sub(FIRST).filter(|offset| offset.is_multiple_of(STEP));
    let device = offset.and_then(|offset| c_int::try_from(offset / STEP).ok());
    device.filter(|&device| device::of_machine(device).is_ok()).ok_or(Error::INVALID_CONTEXT)
}

/// The device of the current context.
pub(crate) fn current() -> Result<c_int, Error> {
    // SAFETY: it takes nothing.
    let device = unsafe { (timeline()?.current_context)() };
    if device < 0 { Err(Error::INVALID_CONTEXT) } else { Ok(device) }
}

fn make_current(device: c_int) -> Result<(), Error> {
    // SAFETY: the sibling takes any number.
    match unsafe { (timeline()?.make_current)(device) } {
        0 => Ok(()),
        code => Err(Error(code)),
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut usize, device: c_int) -> c_int {
    call(|| {
        device::of_machine(device)?;
        // SAFETY: the sibling takes any number.
        unsafe { (timeline()?.create_context)(device) };
        // SAFETY: CUDA requires a writable pointer.
        unsafe { put(context, handle(device)) }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuCtxGetCurrent(context: *mut usize) -> c_int {
    // SAFETY: CUDA requires a writable pointer.
    call(|| unsafe { put(context, current().map_or(0, handle)) })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuCtxSetCurrent(context: usize) -> c_int {
    call(|| make_current(device_of(context)?))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuCtxPushCurrent_v2(context: usize) -> c_int {
    call(|| {
        let below = current().unwrap_or(-1);
        make_current(device_of(context)?)?;
        BELOW.with_borrow_mut(|all| all.push(below));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuCtxPopCurrent_v2(context: *mut usize) -> c_int {
    call(|| {
        let popped = current()?;
        make_current(BELOW.with_borrow_mut(Vec::pop).unwrap_or(-1))?;
        if context.is_null() {
            return Ok(());
        }
        // SAFETY: not NULL, so the caller promises it is writable.
        unsafe { put(context, handle(popped)) }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuCtxGetDevice(device: *mut c_int) -> c_int {
    // SAFETY: CUDA requires a writable pointer.
    call(|| unsafe { put(device, current()?) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuStreamGetCtx(stream: usize, context: *mut usize) -> c_int {
    call(|| {
        current()?;
        let mut device: c_int = -1;
        work::forward(c"cudaStreamGetDevice", [stream, (&raw mut device).expose_provenance()])?;
        // SAFETY: CUDA requires a writable pointer.
        unsafe { put(context, handle(device)) }
    })
}
