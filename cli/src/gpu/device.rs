//! One GPU, its memory, and how long work on it takes.

use std::{
    ffi::{CStr, c_char, c_void},
    ptr::{self, NonNull},
};

use anyhow::Context as _;
use cudarc::{
    cublas::{
        result::{create_handle, gemm_ex, gemm_strided_batched_ex, set_stream},
        sys::{cublasGemmAlgo_t, cublasGetVersion_v2, cublasHandle_t},
    },
    driver,
    runtime::{
        result::{self, RuntimeError, device, event, stream},
        sys::{cudaDeviceGetPCIBusId, cudaEvent_t, cudaStream_t, cudaStreamCreateWithFlags},
    },
};
use xpu_wire::id::DeviceUuid;

use super::gemm::{Gemm, numbers};

/// Smaller matrices alternate between several sets in this much memory, so that, as in a job, a GEMM does not
/// find its matrices in the cache.
pub(crate) const ROUND: u64 = 512 << 20;

/// Share of the free memory that is used.
const MOST: f64 = 0.9;

/// Bytes of random numbers; matrices repeat them.
const NUMBERS: u64 = 4 << 20;

/// If more memory is in use, other processes use the GPU, because CUDA itself needs less.
pub(crate) const OTHERS: u64 = 2 << 30;

/// `cudaStreamNonBlocking`
const NON_BLOCKING: u32 = 1;

#[derive(Debug)]
pub(crate) struct Gpu {
    pub ordinal: i32,
    pub name: Option<String>,
    pub uuid: Option<DeviceUuid>,
    /// `130000` is 13.0.0.
    pub cublas: i32,
    /// Bytes in use when the GPU was opened, including CUDA's own.
    pub held: u64,
    /// The most bytes that this program may allocate.
    pub most: u64,
    stream: cudaStream_t,
    blas: cublasHandle_t,
    memory: Option<NonNull<c_void>>,
    bytes: u64,
    events: Vec<[cudaEvent_t; 2]>,
}

// SAFETY: any thread may use CUDA's handles. Only one thread at a time may use cuBLAS's handles, which `&mut`
// ensures.
unsafe impl Send for Gpu {}

/// GPUs that CUDA sees.
pub(crate) fn count() -> anyhow::Result<i32> {
    device::get_count().map_err(why).context("CUDA finds no GPU")
}

/// The UUID of a GPU, the same in every process. Reading it creates no context.
pub(crate) fn uuid(ordinal: i32) -> Option<DeviceUuid> {
    driver::result::init().ok()?;
    let uuid = driver::result::device::get_uuid(driver::result::device::get(ordinal).ok()?).ok()?;
    Some(DeviceUuid(uuid.bytes.map(|byte| byte as u8)))
}

fn name(ordinal: i32) -> Option<String> {
    driver::result::init().ok()?;
    driver::result::device::get_name(driver::result::device::get(ordinal).ok()?).ok()
}

/// Repeats of work: first untimed ones, then `blocks` blocks of `each` repeats, each block between two
/// events.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub warm: usize,
    pub blocks: usize,
    pub each: usize,
}

impl Gpu {
    /// Opens the GPU of this number, which must be less than [`count`], without allocating memory.
    pub(crate) fn open(ordinal: i32) -> anyhow::Result<Self> {
        device::set(ordinal).map_err(why).context("cannot use the GPU")?;
        let (free, total) = result::get_mem_info().map_err(why)?;
        let mut stream = ptr::null_mut();
        // SAFETY: the place for the handle is this function's.
        unsafe { cudaStreamCreateWithFlags(&raw mut stream, NON_BLOCKING) }.result().map_err(why)?;
        let blas = create_handle().context("cuBLAS does not start")?;
        // SAFETY: both were just made.
        unsafe { set_stream(blas, stream.cast()) }?;
        let mut cublas = 0;
        // SAFETY: the handle was just made, and the number is this function's.
        unsafe { cublasGetVersion_v2(blas, &raw mut cublas) }.result()?;
        Ok(Self {
            ordinal,
            name: name(ordinal),
            uuid: uuid(ordinal),
            cublas,
            held: total.saturating_sub(free) as u64,
            most: (free as f64 * MOST) as u64,
            stream,
            blas,
            memory: None,
            bytes: 0,
            events: Vec::new(),
        })
    }

    /// Its PCI address: `0000:1B:00.0`.
    pub(crate) fn bus_id(&self) -> Option<String> {
        let mut text = [0 as c_char; 32];
        let length = text.len() as i32;
        // SAFETY: the text belongs to this function, and has that size.
        unsafe { cudaDeviceGetPCIBusId(text.as_mut_ptr(), length, self.ordinal) }.result().ok()?;
        // SAFETY: CUDA has just written a text with its NUL into it.
        Some(unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned())
    }

    /// Allocates memory, once. It is released when the program ends.
    pub(crate) fn reserve(&mut self, bytes: u64) -> anyhow::Result<()> {
        self.choose().map_err(|said| anyhow::anyhow!(said))?;
        // SAFETY: it has no precondition; the memory is written before it is read.
        let memory =
            unsafe { result::malloc_sync(bytes as usize) }.map_err(why).context("no memory on the GPU")?;
        self.memory = Some(NonNull::new(memory).context("no memory on the GPU")?);
        self.bytes = bytes;
        Ok(())
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The number of alternating sets of matrices.
    pub(crate) fn sets(&self, bytes: u64) -> u64 {
        (ROUND.min(self.bytes) / bytes.max(1)).max(1)
    }

    /// Makes this GPU the calling thread's device.
    pub(crate) fn choose(&self) -> Result<(), String> {
        device::set(self.ordinal).map_err(said)
    }

    pub(crate) fn stream(&self) -> cudaStream_t {
        self.stream
    }

    pub(crate) fn at(&self, offset: u64) -> *mut c_void {
        let memory = self.memory.map_or(ptr::null_mut(), NonNull::as_ptr);
        memory.wrapping_byte_add(offset as usize)
    }

    /// Fills the memory up to `end`, or up to its own end, with repetitions of `first`.
    pub(crate) fn fill(&self, first: &[u8], end: u64) -> Result<(), String> {
        let end = end.min(self.bytes);
        let mut filled = (first.len() as u64).min(end);
        let first = &first[..filled as usize];
        // SAFETY: this object's memory is at least that large, nothing works on it now, and the source lives until `wait` returns.
        unsafe { result::memcpy_htod_async(self.at(0), first, self.stream) }.map_err(said)?;
        while filled < end && filled > 0 {
            let next = filled.min(end - filled);
            // SAFETY: both are in this object's memory, and one ends before the other begins.
            unsafe { result::memcpy_dtod_async(self.at(filled), self.at(0), next as usize, self.stream) }
                .map_err(said)?;
            filled += next;
        }
        self.wait()
    }

    /// Fills all sets of a GEMM's matrices with random numbers.
    pub(crate) fn fill_for(&self, gemm: &Gemm) -> Result<(), String> {
        let end = (gemm.bytes() * self.sets(gemm.bytes())).min(self.bytes);
        self.fill(&numbers(gemm.elements, NUMBERS.min(end) as usize), end)
    }

    pub(crate) fn wait(&self) -> Result<(), String> {
        // SAFETY: the stream is this object's.
        unsafe { stream::synchronize(self.stream) }.map_err(said)
    }

    /// Records the event of this number before or after a block.
    pub(crate) fn mark(&mut self, block: usize, after: bool) -> Result<(), String> {
        while self.events.len() <= block {
            self.events.push([event::create(0).map_err(said)?, event::create(0).map_err(said)?]);
        }
        // SAFETY: event and stream are this object's.
        unsafe { event::record(self.events[block][usize::from(after)], self.stream) }.map_err(said)
    }

    /// Seconds between the two events of each of the first `blocks` blocks, which must have ended.
    pub(crate) fn between(&self, blocks: usize) -> Result<Vec<f64>, String> {
        let took = |&[before, after]: &[cudaEvent_t; 2]| {
            // SAFETY: both are this object's, recorded on one stream.
            let milliseconds = unsafe { event::elapsed(before, after) }.map_err(said)?;
            Ok(f64::from(milliseconds) / 1e3)
        };
        self.events[..blocks].iter().map(took).collect()
    }

    /// Seconds of each block, timed as by the hook: between two events around it. All are launched before the
    /// first wait, so that the GPU does not wait for its host. The work receives the number of its repeat.
    pub(crate) fn times(
        &mut self,
        plan: Plan,
        mut work: impl FnMut(&Self, u64) -> Result<(), String>,
    ) -> Result<Vec<f64>, String> {
        // Created before the first work, so that nothing delays the blocks.
        for block in 0..plan.blocks {
            self.mark(block, false)?;
        }
        let mut turn = 0;
        for _ in 0..plan.warm {
            work(self, turn)?;
            turn += 1;
        }
        for block in 0..plan.blocks {
            self.mark(block, false)?;
            for _ in 0..plan.each {
                work(self, turn)?;
                turn += 1;
            }
            self.mark(block, true)?;
        }
        self.wait()?;
        self.between(plan.blocks)
    }

    pub(crate) fn multiply(&self, gemm: &Gemm, set: u64) -> Result<(), String> {
        let [m, n, k] = gemm.sides;
        let [lda, ldb, ldd] = gemm.leading;
        let [a, b, d] = [0, 1, 2].map(|matrix| self.at(set * gemm.bytes() + gemm.offsets[matrix]));
        let [op_a, op_b] = gemm.operations;
        let [inputs, output] = gemm.types;
        let (one, zero) = (gemm.one.as_ptr().cast(), [0_u8; 16]);
        let zero = zero.as_ptr().cast();
        let (compute, algo) = (gemm.compute, cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT);
        let outcome = if gemm.batch == 1 {
            // SAFETY: the caller has made sure that the three matrices lie in this object's memory. The sizes
            // are those from which the offsets were computed. The two scalars are in host memory, and are
            // read before the call returns.
            unsafe {
                gemm_ex(
                    self.blas, op_a, op_b, m, n, k, one, a, inputs, lda, b, inputs, ldb, zero, d, output,
                    ldd, compute, algo,
                )
            }
        } else {
            let [step_a, step_b, step_d] = gemm.strides;
            // SAFETY: as above.
            unsafe {
                gemm_strided_batched_ex(
                    self.blas, op_a, op_b, m, n, k, one, a, inputs, lda, step_a, b, inputs, ldb, step_b,
                    zero, d, output, ldd, step_d, gemm.batch, compute, algo,
                )
            }
        };
        outcome.map_err(|error| format!("cuBLAS refuses it: {error}"))
    }
}

pub(crate) fn said(error: RuntimeError) -> String {
    let text = error.error_string().map(|text| text.to_string_lossy().into_owned());
    text.unwrap_or_else(|_unknown| format!("error {}", error.0 as u32))
}

fn why(error: RuntimeError) -> anyhow::Error {
    anyhow::anyhow!(said(error))
}

pub(crate) fn median(times: Vec<f64>) -> f64 {
    xpu_model::job::median(times).unwrap_or(0.0)
}
