//! Memory: that of the runtime, and memory that is created without an address and mapped. Nothing is behind
//! the addresses.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{c_int, c_uint, c_ulonglong};
use std::sync::Mutex;

use simgpu_engine::driver::driver;
use simgpu_engine::lock;

use crate::call::{Error, call, put};
use crate::device;
use crate::work::in_context;

/// Sizes of created memory are multiples of this.
const GRANULARITY: usize = 2 << 20;

/// The first reserved address.
const RESERVED: u64 = 0x7d00_0000_0000;

/// `CU_MEM_ALLOCATION_TYPE_PINNED`, and the location of a device.
const PINNED: c_int = 1;
const ON_DEVICE: c_int = 1;

/// The beginning of `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Properties {
    kind: c_int,
    shared_as: c_int,
    location: c_int,
    number: c_int,
}

#[derive(Debug, Default)]
struct Virtual {
    reserved: u64,
    /// Every piece of memory that exists, by its number.
    pieces: HashMap<u64, Piece>,
    /// The piece of each handle, and how often the handle was given out.
    handles: HashMap<u64, (u64, u32)>,
    /// By address: bytes and piece.
    mapped: BTreeMap<u64, (usize, u64)>,
    last: u64,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    bytes: usize,
    device: c_int,
}

static VIRTUAL: Mutex<Option<Virtual>> = Mutex::new(None);

fn with(body: impl FnOnce(&mut Virtual) -> Result<(), Error>) -> c_int {
    call(|| body(lock(&VIRTUAL).get_or_insert_default()))
}

fn hold(device: c_int, bytes: i64) -> Result<(), Error> {
    // SAFETY: the sibling takes any numbers.
    unsafe { (driver().ok_or(Error::NOT_INITIALIZED)?.hold)(device, bytes) };
    Ok(())
}

impl Virtual {
    /// Frees a piece without handles and mappings.
    fn settle(&mut self, piece: u64) -> Result<(), Error> {
        let is_used = self.handles.values().any(|&(of, _)| of == piece)
            || self.mapped.values().any(|&(_, of)| of == piece);
        match self.pieces.get(&piece) {
            Some(&Piece { bytes, device }) if !is_used => {
                self.pieces.remove(&piece);
                hold(device, -(bytes as i64))
            }
            _ => Ok(()),
        }
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemAlloc_v2(place: usize, bytes: usize) -> c_int {
    in_context(c"cudaMalloc", [place, bytes])
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemAllocManaged(place: usize, bytes: usize, flags: c_uint) -> c_int {
    in_context(c"cudaMallocManaged", [place, bytes, flags as usize])
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemAllocPitch_v2(
    place: usize,
    pitch: usize,
    width: usize,
    height: usize,
    element: c_uint,
) -> c_int {
    if !matches!(element, 4 | 8 | 16) {
        return call(|| Err(Error::INVALID_VALUE));
    }
    in_context(c"cudaMallocPitch", [place, pitch, width, height])
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemFree_v2(address: usize) -> c_int {
    in_context(c"cudaFree", [address])
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemAllocAsync(place: usize, bytes: usize, stream: usize) -> c_int {
    in_context(c"cudaMallocAsync", [place, bytes, stream])
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemAllocFromPoolAsync(
    place: usize,
    bytes: usize,
    pool: usize,
    stream: usize,
) -> c_int {
    in_context(c"cudaMallocFromPoolAsync", [place, bytes, pool, stream])
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemFreeAsync(address: usize, stream: usize) -> c_int {
    in_context(c"cudaFreeAsync", [address, stream])
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemGetAllocationGranularity(
    granularity: *mut usize,
    _properties: *const Properties,
    _option: c_int,
) -> c_int {
    // SAFETY: CUDA requires a writable pointer.
    call(|| unsafe { put(granularity, GRANULARITY) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemAddressReserve(
    place: *mut u64,
    bytes: usize,
    _alignment: usize,
    _wish: u64,
    _flags: c_ulonglong,
) -> c_int {
    with(|known| {
        let at = RESERVED + known.reserved;
        known.reserved += bytes.next_multiple_of(GRANULARITY) as u64;
        // SAFETY: CUDA requires a writable pointer.
        unsafe { put(place, at) }
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemAddressFree(_address: u64, _bytes: usize) -> c_int {
    call(|| Ok(()))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemSetAccess(address: u64, _bytes: usize, _access: usize, _count: usize) -> c_int {
    with(|known| if known.mapped.contains_key(&address) { Ok(()) } else { Err(Error::INVALID_VALUE) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemCreate(
    handle: *mut u64,
    bytes: usize,
    properties: *const Properties,
    _flags: c_ulonglong,
) -> c_int {
    with(|known| {
        // SAFETY: CUDA requires valid properties.
        let properties = unsafe { properties.as_ref() }.ok_or(Error::INVALID_VALUE)?;
        let Properties { kind, location, number, .. } = *properties;
        if kind != PINNED || bytes == 0 || !bytes.is_multiple_of(GRANULARITY) {
            return Err(Error::INVALID_VALUE);
        }
        if location == ON_DEVICE {
            device::of_machine(number)?;
            // SAFETY: it takes nothing.
            let free = unsafe { (driver().ok_or(Error::NOT_INITIALIZED)?.free_memory)() };
            if bytes as u64 > free {
                return Err(Error::OUT_OF_MEMORY);
            }
        }
        // Freed handles are given out again.
        let made =
            (1..u64::MAX).find(|number| !known.handles.contains_key(number)).ok_or(Error::OUT_OF_MEMORY)?;
        // SAFETY: CUDA requires a writable pointer.
        unsafe { put(handle, made) }?;
        known.last += 1;
        let piece = known.last;
        known.handles.insert(made, (piece, 1));
        let held = if location == ON_DEVICE { bytes } else { 0 };
        known.pieces.insert(piece, Piece { bytes: held, device: number });
        hold(number, held as i64)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemRelease(handle: u64) -> c_int {
    with(|known| {
        let (piece, count) = known.handles.get_mut(&handle).ok_or(Error::INVALID_VALUE)?;
        let piece = *piece;
        *count -= 1;
        if *count == 0 {
            known.handles.remove(&handle);
        }
        known.settle(piece)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemRetainAllocationHandle(handle: *mut u64, address: u64) -> c_int {
    with(|known| {
        let below = known.mapped.range(..=address).next_back().ok_or(Error::INVALID_VALUE)?;
        let (&at, &(bytes, piece)) = below;
        if address - at >= bytes as u64 {
            return Err(Error::INVALID_VALUE);
        }
        let same = known.handles.iter().find(|(_, (of, _))| *of == piece).map(|(&handle, _)| handle);
        let free = (1..u64::MAX).find(|number| !known.handles.contains_key(number));
        let found = same.or(free).ok_or(Error::OUT_OF_MEMORY)?;
        known.handles.entry(found).or_insert((piece, 0)).1 += 1;
        // SAFETY: CUDA requires a writable pointer.
        unsafe { put(handle, found) }
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemMap(
    address: u64,
    bytes: usize,
    offset: usize,
    handle: u64,
    _flags: c_ulonglong,
) -> c_int {
    with(|known| {
        let &(piece, _) = known.handles.get(&handle).ok_or(Error::INVALID_VALUE)?;
        if address < RESERVED || offset != 0 || known.mapped.contains_key(&address) {
            return Err(Error::INVALID_VALUE);
        }
        known.mapped.insert(address, (bytes, piece));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemUnmap(address: u64, bytes: usize) -> c_int {
    with(|known| {
        let within = known.mapped.range(address..address + bytes as u64);
        let within: Vec<_> = within.map(|(&at, &(_, piece))| (at, piece)).collect();
        if within.is_empty() {
            return Err(Error::INVALID_VALUE);
        }
        for (at, piece) in within {
            known.mapped.remove(&at);
            known.settle(piece)?;
        }
        Ok(())
    })
}
