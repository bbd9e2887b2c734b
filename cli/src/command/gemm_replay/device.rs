//! One GPU, and the time of a GEMM alone on it.

use std::{
    ffi::c_void,
    ptr::{self, NonNull},
};

use anyhow::{Context as _, bail};
use cudarc::{
    cublas::{
        result::{create_handle, gemm_ex, gemm_strided_batched_ex, set_stream},
        sys::{cublasGemmAlgo_t, cublasGetVersion_v2, cublasHandle_t},
    },
    driver,
    runtime::{
        result::{self, RuntimeError, device, event, stream},
        sys::{cudaEvent_t, cudaStream_t, cudaStreamCreateWithFlags},
    },
};
use xpu_analysis::capture::Alone;

use super::gemm::{Gemm, numbers};
use crate::args::UsageError;

/// Smaller matrices alternate between several sets in this much memory: as in a job, a GEMM's are not in the
/// cache from the GEMM before.
const ROUND: u64 = 512 << 20;

/// Share of the free memory that is used.
const MOST: f64 = 0.9;

/// Bytes of random numbers; matrices repeat them.
const NUMBERS: u64 = 4 << 20;

/// More used memory belongs to other processes: CUDA itself needs less.
const OTHERS: u64 = 2 << 30;

/// `cudaStreamNonBlocking`
const NON_BLOCKING: u32 = 1;

/// Seconds of warm-up, and of timing.
const WARM: f64 = 0.05;
const TIMED: f64 = 0.2;

#[derive(Debug)]
pub(super) struct Gpu {
    pub name: Option<String>,
    /// `130000` is 13.0.0.
    pub cublas: i32,
    stream: cudaStream_t,
    blas: cublasHandle_t,
    memory: NonNull<c_void>,
    bytes: u64,
    /// The largest possible size.
    most: u64,
    events: Vec<[cudaEvent_t; 2]>,
}

impl Gpu {
    /// Allocates memory for the largest of these. It is released when the program ends.
    pub(super) fn open(number: u32, shared: bool, gemms: &[Gemm]) -> anyhow::Result<Self> {
        let count = device::get_count().map_err(why).context("CUDA finds no GPU")?;
        let ordinal = i32::try_from(number).ok().filter(|&ordinal| ordinal < count);
        let Some(ordinal) = ordinal else {
            return Err(
                UsageError::Value(format!("--device {number}: CUDA sees {count} here, from 0 on")).into()
            );
        };
        device::set(ordinal).map_err(why).context("cannot use the GPU")?;
        let (free, total) = result::get_mem_info().map_err(why)?;
        let held = total.saturating_sub(free) as u64;
        if held > OTHERS && !shared {
            bail!(
                "{:.1} GiB of the memory of GPU {number} are in use: both jobs would slow down; use another --device, or --shared",
                held as f64 / f64::from(1 << 30)
            );
        }
        let most = (free as f64 * MOST) as u64;
        let largest = gemms.iter().map(Gemm::bytes).filter(|&bytes| bytes <= most).max().unwrap_or(0);
        let bytes = largest.max(ROUND.min(most));
        let mut stream = ptr::null_mut();
        // SAFETY: the place for the handle is this function's.
        unsafe { cudaStreamCreateWithFlags(&raw mut stream, NON_BLOCKING) }.result().map_err(why)?;
        let blas = create_handle().context("cuBLAS does not start")?;
        // SAFETY: both were just made.
        unsafe { set_stream(blas, stream.cast()) }?;
        let mut cublas = 0;
        // SAFETY: the handle was just made, and the number is this function's.
        unsafe { cublasGetVersion_v2(blas, &raw mut cublas) }.result()?;
        // SAFETY: it asks for nothing; what is in the memory is written before it is read.
        let memory =
            unsafe { result::malloc_sync(bytes as usize) }.map_err(why).context("no memory on the GPU")?;
        let memory = NonNull::new(memory).context("no memory on the GPU")?;
        Ok(Self { name: name(ordinal), cublas, stream, blas, memory, bytes, most, events: Vec::new() })
    }

    /// The median of `iterations` times, or of as many as fill a fifth of a second.
    pub(super) fn time(&mut self, gemm: &Gemm, iterations: Option<u32>) -> Result<Alone, String> {
        if gemm.bytes() > self.bytes {
            let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
            return Err(format!("it needs {:.1} GiB, and {:.1} are free", gib(gemm.bytes()), gib(self.most)));
        }
        let sets = (ROUND.min(self.bytes) / gemm.bytes().max(1)).max(1);
        self.fill(gemm, sets).map_err(|error| format!("its matrices cannot be filled: {error}"))?;
        // The first ones load code: the estimate comes after two runs.
        self.times(gemm, sets, 0, 2)?;
        let one = median(self.times(gemm, sets, 0, 3)?).max(1e-6);
        let warm = (WARM / one).clamp(1.0, 2000.0) as usize;
        let timed = iterations.map_or_else(|| (TIMED / one).clamp(5.0, 500.0) as usize, |n| n as usize);
        let times = self.times(gemm, sets, warm, timed)?;
        Ok(Alone { took_ns: (median(times) * 1e9).round() as u64, iterations: timed as u64 })
    }

    /// Repeats the random numbers up to the end of all sets.
    fn fill(&self, gemm: &Gemm, sets: u64) -> Result<(), String> {
        let end = (gemm.bytes() * sets).min(self.bytes);
        let first = numbers(gemm.elements, NUMBERS.min(end) as usize);
        let mut filled = first.len() as u64;
        // SAFETY: this object's memory is at least so long, nothing works on it now, and the source lives until `wait` returns.
        unsafe { result::memcpy_htod_async(self.at(0), &first, self.stream) }.map_err(said)?;
        while filled < end {
            let next = filled.min(end - filled);
            // SAFETY: both are in this object's memory, and one ends before the other begins.
            unsafe { result::memcpy_dtod_async(self.at(filled), self.at(0), next as usize, self.stream) }
                .map_err(said)?;
            filled += next;
        }
        self.wait()
    }

    fn wait(&self) -> Result<(), String> {
        // SAFETY: the stream is this object's.
        unsafe { stream::synchronize(self.stream) }.map_err(said)
    }

    /// Seconds of each of the last ones, timed as by the hook: between two events around it. All are launched before
    /// the first wait, so that the GPU does not wait for its host.
    fn times(&mut self, gemm: &Gemm, sets: u64, warm: usize, timed: usize) -> Result<Vec<f64>, String> {
        while self.events.len() < timed {
            self.events.push([event::create(0).map_err(said)?, event::create(0).map_err(said)?]);
        }
        let record = |event| {
            // SAFETY: event and stream are this object's.
            unsafe { event::record(event, self.stream) }.map_err(said)
        };
        for (turn, events) in (0..warm).map(|_| None).chain(self.events[..timed].iter().map(Some)).enumerate()
        {
            if let Some([before, _]) = events {
                record(*before)?;
            }
            self.multiply(gemm, turn as u64 % sets)?;
            if let Some([_, after]) = events {
                record(*after)?;
            }
        }
        self.wait()?;
        let took = |&[before, after]: &[cudaEvent_t; 2]| {
            // SAFETY: both are this object's, recorded above, on one stream.
            let milliseconds = unsafe { event::elapsed(before, after) }.map_err(said)?;
            Ok(f64::from(milliseconds) / 1e3)
        };
        self.events[..timed].iter().map(took).collect()
    }

    fn multiply(&self, gemm: &Gemm, set: u64) -> Result<(), String> {
        let [m, n, k] = gemm.sides;
        let [lda, ldb, ldd] = gemm.leading;
        let [a, b, d] = [0, 1, 2].map(|matrix| self.at(set * gemm.bytes() + gemm.offsets[matrix]));
        let [op_a, op_b] = gemm.operations;
        let [inputs, output] = gemm.types;
        let (one, zero) = (gemm.one.as_ptr().cast(), [0_u8; 16]);
        let zero = zero.as_ptr().cast();
        let (compute, algo) = (gemm.compute, cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT);
        let outcome = if gemm.batch == 1 {
            // SAFETY: the three lie in this object's memory, which `time` has made sure of; sizes are those the offsets were made from,
            // and the two scalars, of the host, are read before the call returns.
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

    fn at(&self, offset: u64) -> *mut c_void {
        self.memory.as_ptr().wrapping_byte_add(offset as usize)
    }
}

fn name(ordinal: i32) -> Option<String> {
    driver::result::init().ok()?;
    driver::result::device::get_name(driver::result::device::get(ordinal).ok()?).ok()
}

fn said(error: RuntimeError) -> String {
    let text = error.error_string().map(|text| text.to_string_lossy().into_owned());
    text.unwrap_or_else(|_unknown| format!("error {}", error.0 as u32))
}

fn why(error: RuntimeError) -> anyhow::Error {
    anyhow::anyhow!(said(error))
}

fn median(times: Vec<f64>) -> f64 {
    xpu_model::job::median(times).unwrap_or(0.0)
}
