//! Layouts of matrices. Unlike other descriptors, a layout is a struct whose size is in the header, and its
//! handle is its address. Programs may have it on their stack and read it.

use std::ffi::{c_int, c_void};
use std::sync::Mutex;

use simgpu_engine::lock;

use crate::put::put;
use simgpu_engine::cublas::{Status, call};

/// `cublasLtMatrixLayoutOpaque_t`, 64 bytes until CUDA 13.1.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Layout {
    pub(crate) data_type: c_int,
    order: c_int,
    pub(crate) rows: u64,
    pub(crate) columns: u64,
    leading: i64,
    pub(crate) batch: c_int,
    reserved: c_int,
    stride: i64,
    plane: i64,
    more: u64,
}

/// The offset and size of each attribute, from `CUBLASLT_MATRIX_LAYOUT_TYPE` on.
const ATTRIBUTES: [(usize, usize); 8] = [(0, 4), (4, 4), (8, 8), (16, 8), (24, 8), (32, 4), (40, 8), (48, 8)];

/// The layouts that exist, and the addresses of destroyed ones: these are reused and never freed.
static LAYOUTS: Mutex<Places> = Mutex::new(Places { live: Vec::new(), free: Vec::new() });

struct Places {
    live: Vec<usize>,
    free: Vec<usize>,
}

/// Reads or changes a layout.
pub(crate) fn with<T>(handle: usize, look: impl FnOnce(&mut Layout) -> T) -> Result<T, Status> {
    let places = lock(&LAYOUTS);
    if !places.live.contains(&handle) {
        return Err(Status::InvalidValue);
    }
    // SAFETY: live places are leaked boxes; the lock is held.
    Ok(look(unsafe { &mut *(handle as *mut Layout) }))
}

fn place_of(name: c_int, layout: &mut Layout) -> Option<(*mut u8, usize)> {
    let (offset, size) = *ATTRIBUTES.get(usize::try_from(name).ok()?)?;
    Some((std::ptr::from_mut(layout).cast::<u8>().wrapping_add(offset), size))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cublasLtMatrixLayoutCreate(
    layout: *mut usize,
    data_type: c_int,
    rows: u64,
    columns: u64,
    leading: i64,
) -> c_int {
    call(|_| {
        if layout.is_null() {
            return Err(Status::InvalidValue);
        }
        let fresh = Layout { data_type, rows, columns, leading, batch: 1, ..Layout::default() };
        let mut places = lock(&LAYOUTS);
        let place = places
            .free
            .pop()
            .unwrap_or_else(|| std::ptr::from_mut(Box::leak(Box::new(Layout::default()))) as usize);
        // SAFETY: a leaked box that nothing else uses.
        unsafe { (place as *mut Layout).write(fresh) };
        places.live.push(place);
        // SAFETY: cublasLt requires a writable pointer.
        unsafe { put(layout, place) }
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cublasLtMatrixLayoutDestroy(layout: usize) -> c_int {
    call(|_| {
        let mut places = lock(&LAYOUTS);
        let index = places.live.iter().position(|&live| live == layout).ok_or(Status::InvalidValue)?;
        places.live.swap_remove(index);
        places.free.push(layout);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cublasLtMatrixLayoutSetAttribute(
    layout: usize,
    name: c_int,
    from: *const c_void,
    bytes: usize,
) -> c_int {
    call(|_| {
        with(layout, |layout| match place_of(name, layout) {
            Some((place, size)) if size == bytes && !from.is_null() => {
                // SAFETY: within the layout; cublasLt requires `bytes` readable bytes.
                unsafe { place.copy_from_nonoverlapping(from.cast(), size) };
                Ok(())
            }
            _ => Err(Status::InvalidValue),
        })?
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cublasLtMatrixLayoutGetAttribute(
    layout: usize,
    name: c_int,
    to: *mut c_void,
    free: usize,
    written: *mut usize,
) -> c_int {
    call(|_| {
        with(layout, |layout| {
            let (place, size) = place_of(name, layout).ok_or(Status::InvalidValue)?;
            if free != 0 {
                if to.is_null() || free < size {
                    return Err(Status::InvalidValue);
                }
                // SAFETY: within the layout; cublasLt requires `free` writable bytes.
                unsafe { to.cast::<u8>().copy_from_nonoverlapping(place, size) };
            }
            // SAFETY: cublasLt requires NULL or a writable pointer.
            if written.is_null() { Ok(()) } else { unsafe { put(written, size) } }
        })?
    })
}
