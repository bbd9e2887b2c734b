//! NCCL, loaded at run time: all-reduces over GPUs of this process, and of other processes with the same id.

use std::ffi::{CStr, c_char, c_int, c_void};

use cudarc::nccl::sys::{ncclComm_t, ncclDataType_t, ncclRedOp_t, ncclResult_t, ncclUniqueId};
use cudarc::runtime::sys::cudaStream_t;
use libloading::Library;

use super::{device::Gpu, library};

/// The functions of NCCL that are used, with their signatures in nccl.h.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nccl {
    unique_id: unsafe extern "C" fn(*mut ncclUniqueId) -> ncclResult_t,
    init_rank: unsafe extern "C" fn(*mut ncclComm_t, c_int, ncclUniqueId, c_int) -> ncclResult_t,
    destroy: unsafe extern "C" fn(ncclComm_t) -> ncclResult_t,
    group_start: unsafe extern "C" fn() -> ncclResult_t,
    group_end: unsafe extern "C" fn() -> ncclResult_t,
    all_reduce: unsafe extern "C" fn(
        *const c_void,
        *mut c_void,
        usize,
        ncclDataType_t,
        ncclRedOp_t,
        ncclComm_t,
        cudaStream_t,
    ) -> ncclResult_t,
    error: unsafe extern "C" fn(ncclResult_t) -> *const c_char,
}

/// The id by which the processes of a communicator find each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UniqueId(ncclUniqueId);

impl UniqueId {
    /// The id in hexadecimal, to be sent to other processes.
    pub(crate) fn text(&self) -> String {
        use std::fmt::Write as _;
        self.0.internal.iter().fold(String::new(), |mut text, &byte| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{:02x}", byte as u8);
            text
        })
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut id = ncclUniqueId { internal: [0; 128] };
        if text.len() != 2 * id.internal.len() || !text.is_ascii() {
            return None;
        }
        for (place, byte) in id.internal.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * place..2 * place + 2], 16).ok()? as c_char;
        }
        Some(Self(id))
    }
}

/// The ranks of this process among those of a communicator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ranks {
    pub first: u32,
    pub world: u32,
}

/// A communicator's ranks in this process, in the order of its GPUs.
#[derive(Debug)]
pub(crate) struct Communicator {
    nccl: Nccl,
    ranks: Vec<ncclComm_t>,
}

impl Nccl {
    /// Loads NCCL, which stays loaded.
    pub(crate) fn open() -> Option<Self> {
        let library = library::nccl()?;
        let nccl = Self::of(&library);
        std::mem::forget(library);
        nccl
    }

    fn of(library: &Library) -> Option<Self> {
        // SAFETY: NCCL's functions of these names have had these signatures since 2.0.
        unsafe {
            Some(Self {
                unique_id: *library.get(b"ncclGetUniqueId").ok()?,
                init_rank: *library.get(b"ncclCommInitRank").ok()?,
                destroy: *library.get(b"ncclCommDestroy").ok()?,
                group_start: *library.get(b"ncclGroupStart").ok()?,
                group_end: *library.get(b"ncclGroupEnd").ok()?,
                all_reduce: *library.get(b"ncclAllReduce").ok()?,
                error: *library.get(b"ncclGetErrorString").ok()?,
            })
        }
    }

    pub(crate) fn unique_id(self) -> Result<UniqueId, String> {
        let mut id = ncclUniqueId { internal: [0; 128] };
        // SAFETY: the place is this function's.
        self.check(unsafe { (self.unique_id)(&raw mut id) })?;
        Ok(UniqueId(id))
    }

    /// Waits until all ranks of all processes have joined.
    pub(crate) fn communicator(self, gpus: &[Gpu], id: UniqueId, of: Ranks) -> Result<Communicator, String> {
        let mut ranks = vec![std::ptr::null_mut(); gpus.len()];
        self.group(|| {
            for (place, (gpu, rank)) in gpus.iter().zip(&mut ranks).enumerate() {
                gpu.choose()?;
                // SAFETY: the place lives until the group ends.
                self.check(unsafe {
                    (self.init_rank)(rank, of.world as c_int, id.0, (of.first as usize + place) as c_int)
                })?;
            }
            Ok(())
        })?;
        Ok(Communicator { nccl: self, ranks })
    }

    fn group(self, calls: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
        // SAFETY: it takes nothing.
        self.check(unsafe { (self.group_start)() })?;
        let outcome = calls();
        // SAFETY: as above; a group that was begun is always ended.
        self.check(unsafe { (self.group_end)() }).and(outcome)
    }

    fn check(self, result: ncclResult_t) -> Result<(), String> {
        if result == ncclResult_t::ncclSuccess {
            return Ok(());
        }
        // SAFETY: NCCL answers with a text of its own for any number.
        let text = unsafe { CStr::from_ptr((self.error)(result)) };
        Err(format!("NCCL: {}", text.to_string_lossy()))
    }
}

impl Communicator {
    /// Sums the first bytes of the memory of all GPUs in place, on each GPU's own stream.
    pub(crate) fn all_reduce(&self, gpus: &[Gpu], bytes: u64) -> Result<(), String> {
        self.nccl.group(|| {
            for (gpu, &rank) in gpus.iter().zip(&self.ranks) {
                // SAFETY: the memory is the GPU's, and at least that large; the communicator is this object's.
                self.nccl.check(unsafe {
                    (self.nccl.all_reduce)(
                        gpu.at(0),
                        gpu.at(0),
                        (bytes / 4) as usize,
                        ncclDataType_t::ncclFloat32,
                        ncclRedOp_t::ncclSum,
                        rank,
                        gpu.stream(),
                    )
                })?;
            }
            Ok(())
        })
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        for &rank in &self.ranks {
            // SAFETY: it is this object's, and no longer used. Its result does not matter.
            let _ = unsafe { (self.nccl.destroy)(rank) };
        }
    }
}
