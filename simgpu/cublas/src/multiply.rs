//! The common path of all entries: it checks the arguments as cuBLAS does, and puts the work on the handle's
//! stream.

use std::ffi::c_int;

use simgpu_engine::driver::Driver;
use simgpu_engine::gemm::{COMPUTE_32F, COMPUTE_32F_FAST_TF32, Gemm};

use crate::handle::Handle;
use simgpu_engine::cublas::{Status, call};

/// The data type and compute type of a GEMM.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub(crate) data_type: c_int,
    pub(crate) compute_type: c_int,
    /// `cublasGemmAlgo_t`
    pub(crate) algo: c_int,
}

impl Kind {
    fn is_known(self) -> bool {
        let algo = matches!(self.algo, -1..=23 | 99..=115);
        algo && (0..=33).contains(&self.data_type) && (64..=79).contains(&self.compute_type)
    }
}

/// The sizes of one GEMM, or of `batch` equal ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sides {
    transposed: [c_int; 2],
    mnk: [i64; 3],
    leading: [i64; 3],
    batch: i64,
}

impl Sides {
    pub(crate) fn of<Int: Into<i64>>(
        transposed: [c_int; 2],
        sides: [Int; 3],
        leading: [Int; 3],
        batch: Int,
    ) -> Self {
        Self { transposed, mnk: sides.map(Into::into), leading: leading.map(Into::into), batch: batch.into() }
    }

    /// The sizes of the group with this index.
    ///
    /// # Safety
    /// All arrays must have this element.
    pub(crate) unsafe fn at<Int: Copy + Into<i64>>(
        group: usize,
        transposed: [*const c_int; 2],
        sides: [*const Int; 3],
        leading: [*const Int; 3],
        sizes: *const Int,
    ) -> Self {
        // SAFETY: this function's own condition.
        let operation = |array: *const c_int| unsafe { *array.add(group) };
        // SAFETY: as above.
        let number = |array: *const Int| unsafe { *array.add(group) };
        Self::of(transposed.map(operation), sides.map(number), leading.map(number), number(sizes))
    }

    fn gemm(self, kind: Kind) -> Result<Gemm, Status> {
        // N, T or C
        let known = self.transposed.iter().all(|op| (0..=2).contains(op));
        let [m, n, k] = self.mnk;
        let [a, b] = self.transposed.map(|op| op != 0);
        let rows = [if a { k } else { m }, if b { n } else { k }, m];
        let fits = rows.iter().zip(self.leading).all(|(&rows, leading)| leading >= rows.max(1));
        let counted = [m, n, k, self.batch].map(u64::try_from);
        let [Ok(m), Ok(n), Ok(k), Ok(batch)] = counted else { return Err(Status::InvalidValue) };
        if !known || !fits || !kind.is_known() {
            return Err(Status::InvalidValue);
        }
        let Kind { data_type, compute_type, .. } = kind;
        Ok(Gemm { m, n, k, batch, data_type, compute_type })
    }
}

pub(crate) fn multiply(handle: usize, kind: Kind, sides: Sides) -> c_int {
    call(|driver| {
        let handle = Handle::of(handle)?;
        let gemm = sides.gemm(handle.allow_tf32(kind))?;
        enqueue(driver, &handle, &[gemm])
    })
}

/// Groups of equal GEMMs, launched as one.
pub(crate) fn grouped(
    handle: usize,
    kind: Kind,
    count: impl Into<i64>,
    group: impl Fn(usize) -> Sides,
) -> c_int {
    call(|driver| {
        let handle = Handle::of(handle)?;
        let count = usize::try_from(count.into()).map_err(|_ignored| Status::InvalidValue)?;
        let kind = handle.allow_tf32(kind);
        let gemms: Vec<_> = (0..count).map(|i| group(i).gemm(kind)).collect::<Result<_, _>>()?;
        enqueue(driver, &handle, &gemms)
    })
}

fn enqueue(driver: Driver, handle: &Handle, gemms: &[Gemm]) -> Result<(), Status> {
    let Some(first) = gemms.iter().find(|gemm| !gemm.is_empty()) else { return Ok(()) };
    let flop = gemms.iter().map(Gemm::flop).sum();
    // SAFETY: found by `Driver::find`; it takes plain numbers.
    let code = unsafe { (driver.enqueue_gemm)(handle.stream(), flop, first.rate()) };
    if code == 0 { Ok(()) } else { Err(Status::ExecutionFailed) }
}

impl Handle {
    /// If the math mode allows it, single precision is multiplied in TF32.
    fn allow_tf32(&self, kind: Kind) -> Kind {
        let single = matches!(kind.data_type, 0 | 4) && kind.compute_type == COMPUTE_32F;
        let compute_type = if single && self.is_tf32() { COMPUTE_32F_FAST_TF32 } else { kind.compute_type };
        Kind { compute_type, ..kind }
    }

    /// The share of full speed at which this kind of numbers is multiplied.
    pub(crate) fn rate(&self, kind: Kind) -> f64 {
        let Kind { data_type, compute_type, .. } = self.allow_tf32(kind);
        Gemm { m: 1, n: 1, k: 1, batch: 1, data_type, compute_type }.rate()
    }
}
