//! Products other than GEMMs: those with a vector, and the rest of BLAS 3. A line of the table is an entry
//! and its twin with 64-bit sizes. Pointers are accepted and not read.

use std::ffi::{c_int, c_longlong, c_void};

use simgpu_engine::cublas::{Status, call};

use crate::gemm::{C, D, S, Z};
use crate::handle::Handle;
use crate::multiply::Kind;

/// 16-bit matrices that are multiplied in single precision.
const HALF: Kind = Kind { data_type: 2, ..S };
const SHORT: Kind = Kind { data_type: 14, ..S };

/// The share of a GEMM's speed: the memory limits a product with a vector, and the order of its blocks a
/// solve.
const OF_VECTOR: f64 = 1.0 / 64.0;
const OF_SOLVE: f64 = 0.25;

/// The flags of `cublasOperation_t`, and those of the side, the triangle and the diagonal.
const OPERATIONS: c_int = 3;
const TWO: c_int = 2;

type Pointer = *const c_void;

/// Arguments as cuBLAS checks them, and the work that they ask for.
#[derive(Clone, Copy, Debug)]
struct Product<'a> {
    /// Each flag, and how many values it has.
    flags: &'a [(c_int, c_int)],
    sizes: &'a [i64],
    /// Rows as stored, and the leading dimension.
    stored: &'a [(i64, i64)],
    /// Multiply-adds, as the product of these.
    work: &'a [f64],
    speed: f64,
}

fn compute(handle: usize, kind: Kind, product: Product<'_>) -> c_int {
    call(|driver| {
        let handle = Handle::of(handle)?;
        let Product { flags, sizes, stored, work, speed } = product;
        let known = flags.iter().all(|&(flag, count)| (0..count).contains(&flag));
        let fits = stored.iter().all(|&(rows, leading)| leading >= rows.max(1));
        if !known || !fits || sizes.iter().any(|&size| size < 0) {
            return Err(Status::InvalidValue);
        }
        if sizes.contains(&0) {
            return Ok(());
        }
        let complex = if matches!(kind.data_type, 4 | 5) { 4.0 } else { 1.0 };
        let flop = 2.0 * complex * work.iter().product::<f64>();
        let rate = handle.rate(kind) * speed;
        // SAFETY: found by `Driver::find`; it takes plain numbers.
        let code = unsafe { (driver.enqueue_gemm)(handle.stream(), flop, rate) };
        if code == 0 { Ok(()) } else { Err(Status::ExecutionFailed) }
    })
}

#[allow(clippy::cast_precision_loss, reason = "no matrix has a side of 2^52")]
fn real(size: i64) -> f64 {
    size as f64
}

/// y = op(A) x, `batch` times.
fn with_vector(handle: usize, kind: Kind, op: c_int, [m, n, lda, incx, incy, batch]: [i64; 6]) -> c_int {
    let product = Product {
        // Vectors whose elements are in one place are refused.
        flags: &[(op, OPERATIONS), (c_int::from(incx == 0 || incy == 0), 1)],
        sizes: &[m, n, batch],
        stored: &[(m, lda)],
        work: &[real(m), real(n), real(batch)],
        speed: OF_VECTOR,
    };
    compute(handle, kind, product)
}

/// A product or a solve with a special matrix at one side; `part` of the special matrix is used.
fn one_sided(
    handle: usize,
    kind: Kind,
    flags: [c_int; 4],
    [m, n, lda, ldb, ldc, batch]: [i64; 6],
    (part, speed): (f64, f64),
) -> c_int {
    let [side, fill, op, diagonal] = flags;
    let special = if side == 0 { m } else { n };
    let product = Product {
        flags: &[(side, TWO), (fill, TWO), (op, OPERATIONS), (diagonal, TWO)],
        sizes: &[m, n, batch],
        stored: &[(special, lda), (m, ldb), (m, ldc)],
        work: &[part, real(special), real(m), real(n), real(batch)],
        speed,
    };
    compute(handle, kind, product)
}

/// One triangle of a product of n rows and columns, whose sums have `k` terms; `terms` is the number of
/// elements.
fn triangle(
    handle: usize,
    kind: Kind,
    [fill, op]: [c_int; 2],
    [n, k, lda, ldb, ldc]: [i64; 5],
    terms: f64,
) -> c_int {
    let rows = if op == 0 { n } else { k };
    let product = Product {
        flags: &[(fill, TWO), (op, OPERATIONS)],
        sizes: &[n, k],
        stored: &[(rows, lda), (rows, ldb), (n, ldc)],
        work: &[terms, real(k)],
        speed: 1.0,
    };
    compute(handle, kind, product)
}

/// The elements of one triangle, with the diagonal.
fn elements(n: impl Into<i64>) -> f64 {
    let n = real(n.into());
    n * (n + 1.0) / 2.0
}

macro_rules! entries {
    ($($list:ident $name:ident $wide:ident $kind:ident;)*) => {$(
        entries! { $list! $name c_int $kind }
        entries! { $list! $wide i64 $kind }
    )*};
    (vector! $name:ident $int:ident $kind:ident) => {
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name(
            handle: usize, trans: c_int, m: $int, n: $int, _alpha: Pointer, _a: Pointer, lda: $int, _x: Pointer,
            incx: $int, _beta: Pointer, _y: Pointer, incy: $int,
        ) -> c_int {
            with_vector(handle, $kind, trans, [m, n, lda, incx, incy, 1].map(i64::from))
        }
    };
    (vectors! $name:ident $int:ident $kind:ident) => {
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name(
            handle: usize, trans: c_int, m: $int, n: $int, _alpha: Pointer, _a: Pointer, lda: $int, _x: Pointer,
            incx: $int, _beta: Pointer, _y: Pointer, incy: $int, batch: $int,
        ) -> c_int {
            with_vector(handle, $kind, trans, [m, n, lda, incx, incy, batch].map(i64::from))
        }
    };
    (vectors_strided! $name:ident $int:ident $kind:ident) => {
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name(
            handle: usize, trans: c_int, m: $int, n: $int, _alpha: Pointer, _a: Pointer, lda: $int,
            _stride_a: c_longlong, _x: Pointer, incx: $int, _stride_x: c_longlong, _beta: Pointer, _y: Pointer,
            incy: $int, _stride_y: c_longlong, batch: $int,
        ) -> c_int {
            with_vector(handle, $kind, trans, [m, n, lda, incx, incy, batch].map(i64::from))
        }
    };
    (symmetric! $name:ident $int:ident $kind:ident) => {
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name(
            handle: usize, side: c_int, uplo: c_int, m: $int, n: $int, _alpha: Pointer, _a: Pointer, lda: $int,
            _b: Pointer, ldb: $int, _beta: Pointer, _c: Pointer, ldc: $int,
        ) -> c_int {
            let sizes = [m, n, lda, ldb, ldc, 1].map(i64::from);
            one_sided(handle, $kind, [side, uplo, 0, 0], sizes, (1.0, 1.0))
        }
    };
    (triangular! $name:ident $int:ident $kind:ident) => {
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name(
            handle: usize, side: c_int, uplo: c_int, trans: c_int, diag: c_int, m: $int, n: $int, _alpha: Pointer,
            _a: Pointer, lda: $int, _b: Pointer, ldb: $int, _c: Pointer, ldc: $int,
        ) -> c_int {
            let sizes = [m, n, lda, ldb, ldc, 1].map(i64::from);
            one_sided(handle, $kind, [side, uplo, trans, diag], sizes, (0.5, 1.0))
        }
    };
    (solve! $name:ident $int:ident $kind:ident) => {
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name(
            handle: usize, side: c_int, uplo: c_int, trans: c_int, diag: c_int, m: $int, n: $int, _alpha: Pointer,
            _a: Pointer, lda: $int, _b: Pointer, ldb: $int,
        ) -> c_int {
            let sizes = [m, n, lda, ldb, ldb, 1].map(i64::from);
            one_sided(handle, $kind, [side, uplo, trans, diag], sizes, (0.5, OF_SOLVE))
        }
    };
    (solves! $name:ident $int:ident $kind:ident) => {
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name(
            handle: usize, side: c_int, uplo: c_int, trans: c_int, diag: c_int, m: $int, n: $int, _alpha: Pointer,
            _a: Pointer, lda: $int, _b: Pointer, ldb: $int, batch: $int,
        ) -> c_int {
            let sizes = [m, n, lda, ldb, ldb, batch].map(i64::from);
            one_sided(handle, $kind, [side, uplo, trans, diag], sizes, (0.5, OF_SOLVE))
        }
    };
    (of_one! $name:ident $int:ident $kind:ident) => {
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name(
            handle: usize, uplo: c_int, trans: c_int, n: $int, k: $int, _alpha: Pointer, _a: Pointer, lda: $int,
            _beta: Pointer, _c: Pointer, ldc: $int,
        ) -> c_int {
            let sizes = [n, k, lda, lda, ldc].map(i64::from);
            triangle(handle, $kind, [uplo, trans], sizes, elements(n))
        }
    };
    (of_one_typed! $name:ident $int:ident $kind:ident) => {
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name(
            handle: usize, uplo: c_int, trans: c_int, n: $int, k: $int, _alpha: Pointer, _a: Pointer, a_type: c_int,
            lda: $int, _beta: Pointer, _c: Pointer, _c_type: c_int, ldc: $int,
        ) -> c_int {
            let sizes = [n, k, lda, lda, ldc].map(i64::from);
            triangle(handle, Kind { data_type: a_type, ..$kind }, [uplo, trans], sizes, elements(n))
        }
    };
    (of_two! $name:ident $int:ident $kind:ident) => {
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name(
            handle: usize, uplo: c_int, trans: c_int, n: $int, k: $int, _alpha: Pointer, _a: Pointer, lda: $int,
            _b: Pointer, ldb: $int, _beta: Pointer, _c: Pointer, ldc: $int,
        ) -> c_int {
            let sizes = [n, k, lda, ldb, ldc].map(i64::from);
            triangle(handle, $kind, [uplo, trans], sizes, real(sizes[0]) * real(sizes[0]))
        }
    };
    (known_symmetric! $name:ident $int:ident $kind:ident) => {
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name(
            handle: usize, uplo: c_int, trans: c_int, n: $int, k: $int, _alpha: Pointer, _a: Pointer, lda: $int,
            _b: Pointer, ldb: $int, _beta: Pointer, _c: Pointer, ldc: $int,
        ) -> c_int {
            let sizes = [n, k, lda, ldb, ldc].map(i64::from);
            triangle(handle, $kind, [uplo, trans], sizes, elements(n))
        }
    };
}

entries! {
    vector cublasSgemv_v2 cublasSgemv_v2_64 S;
    vector cublasDgemv_v2 cublasDgemv_v2_64 D;
    vector cublasCgemv_v2 cublasCgemv_v2_64 C;
    vector cublasZgemv_v2 cublasZgemv_v2_64 Z;
    vectors cublasSgemvBatched cublasSgemvBatched_64 S;
    vectors cublasDgemvBatched cublasDgemvBatched_64 D;
    vectors cublasCgemvBatched cublasCgemvBatched_64 C;
    vectors cublasZgemvBatched cublasZgemvBatched_64 Z;
    vectors cublasHSHgemvBatched cublasHSHgemvBatched_64 HALF;
    vectors cublasHSSgemvBatched cublasHSSgemvBatched_64 HALF;
    vectors cublasTSTgemvBatched cublasTSTgemvBatched_64 SHORT;
    vectors cublasTSSgemvBatched cublasTSSgemvBatched_64 SHORT;
    vectors_strided cublasSgemvStridedBatched cublasSgemvStridedBatched_64 S;
    vectors_strided cublasDgemvStridedBatched cublasDgemvStridedBatched_64 D;
    vectors_strided cublasCgemvStridedBatched cublasCgemvStridedBatched_64 C;
    vectors_strided cublasZgemvStridedBatched cublasZgemvStridedBatched_64 Z;
    vectors_strided cublasHSHgemvStridedBatched cublasHSHgemvStridedBatched_64 HALF;
    vectors_strided cublasHSSgemvStridedBatched cublasHSSgemvStridedBatched_64 HALF;
    vectors_strided cublasTSTgemvStridedBatched cublasTSTgemvStridedBatched_64 SHORT;
    vectors_strided cublasTSSgemvStridedBatched cublasTSSgemvStridedBatched_64 SHORT;
    symmetric cublasSsymm_v2 cublasSsymm_v2_64 S;
    symmetric cublasDsymm_v2 cublasDsymm_v2_64 D;
    symmetric cublasCsymm_v2 cublasCsymm_v2_64 C;
    symmetric cublasZsymm_v2 cublasZsymm_v2_64 Z;
    symmetric cublasChemm_v2 cublasChemm_v2_64 C;
    symmetric cublasZhemm_v2 cublasZhemm_v2_64 Z;
    triangular cublasStrmm_v2 cublasStrmm_v2_64 S;
    triangular cublasDtrmm_v2 cublasDtrmm_v2_64 D;
    triangular cublasCtrmm_v2 cublasCtrmm_v2_64 C;
    triangular cublasZtrmm_v2 cublasZtrmm_v2_64 Z;
    solve cublasStrsm_v2 cublasStrsm_v2_64 S;
    solve cublasDtrsm_v2 cublasDtrsm_v2_64 D;
    solve cublasCtrsm_v2 cublasCtrsm_v2_64 C;
    solve cublasZtrsm_v2 cublasZtrsm_v2_64 Z;
    solves cublasStrsmBatched cublasStrsmBatched_64 S;
    solves cublasDtrsmBatched cublasDtrsmBatched_64 D;
    solves cublasCtrsmBatched cublasCtrsmBatched_64 C;
    solves cublasZtrsmBatched cublasZtrsmBatched_64 Z;
    of_one cublasSsyrk_v2 cublasSsyrk_v2_64 S;
    of_one cublasDsyrk_v2 cublasDsyrk_v2_64 D;
    of_one cublasCsyrk_v2 cublasCsyrk_v2_64 C;
    of_one cublasZsyrk_v2 cublasZsyrk_v2_64 Z;
    of_one cublasCherk_v2 cublasCherk_v2_64 C;
    of_one cublasZherk_v2 cublasZherk_v2_64 Z;
    of_one_typed cublasCsyrkEx cublasCsyrkEx_64 S;
    of_one_typed cublasCsyrk3mEx cublasCsyrk3mEx_64 S;
    of_one_typed cublasCherkEx cublasCherkEx_64 S;
    of_one_typed cublasCherk3mEx cublasCherk3mEx_64 S;
    of_two cublasSsyr2k_v2 cublasSsyr2k_v2_64 S;
    of_two cublasDsyr2k_v2 cublasDsyr2k_v2_64 D;
    of_two cublasCsyr2k_v2 cublasCsyr2k_v2_64 C;
    of_two cublasZsyr2k_v2 cublasZsyr2k_v2_64 Z;
    of_two cublasCher2k_v2 cublasCher2k_v2_64 C;
    of_two cublasZher2k_v2 cublasZher2k_v2_64 Z;
    known_symmetric cublasSsyrkx cublasSsyrkx_64 S;
    known_symmetric cublasDsyrkx cublasDsyrkx_64 D;
    known_symmetric cublasCsyrkx cublasCsyrkx_64 C;
    known_symmetric cublasZsyrkx cublasZsyrkx_64 Z;
    known_symmetric cublasCherkx cublasCherkx_64 C;
    known_symmetric cublasZherkx cublasZherkx_64 Z;
}
