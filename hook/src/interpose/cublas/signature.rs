//! cuBLAS's argument lists for GEMMs, each with 32-bit and 64-bit sizes. Pointers are passed on unread,
//! except the arrays of sizes of a grouped GEMM, which are in host memory.

/// `KIND NAME, NAME_64 (NUMBERS);` for each function. The brackets are only for kinds without arguments that
/// name the types.
macro_rules! gemms {
    ($($kind:ident $name:ident, $wide:ident $(($numbers:expr))?;)*) => {$(
        gemms! { @$kind $name, c_int $(, $numbers)? }
        gemms! { @$kind $wide, i64 $(, $numbers)? }
    )*};

    (@plain $name:ident, $size:ty, $numbers:expr) => { interpose! {
        fn $name(
            handle: cublasHandle_t, operation_a: c_int, operation_b: c_int, m: $size, n: $size, k: $size,
            alpha: *const c_void, a: *const c_void, lda: $size, b: *const c_void, ldb: $size, beta: *const c_void,
            c: *mut c_void, ldc: $size,
        ) -> c_int in CUBLAS, or MISSING;
        before |lane| {
            let shape = gemm_shape($numbers, handle, [m, n, k], 1, [operation_a, operation_b]);
            gemm::begin(lane, shape, || stream_of(handle))
        };
        after |lane, gemm, result| gemm::end(lane, gemm, result);
    } };

    (@typed $name:ident, $size:ty) => { interpose! {
        fn $name(
            handle: cublasHandle_t, operation_a: c_int, operation_b: c_int, m: $size, n: $size, k: $size,
            alpha: *const c_void, a: *const c_void, a_type: c_int, lda: $size, b: *const c_void, b_type: c_int,
            ldb: $size, beta: *const c_void, c: *mut c_void, c_type: c_int, ldc: $size,
        ) -> c_int in CUBLAS, or MISSING;
        before |lane| {
            let shape = gemm_shape(Numbers::single(a_type), handle, [m, n, k], 1, [operation_a, operation_b]);
            gemm::begin(lane, shape, || stream_of(handle))
        };
        after |lane, gemm, result| gemm::end(lane, gemm, result);
    } };

    (@ex $name:ident, $size:ty) => { interpose! {
        fn $name(
            handle: cublasHandle_t, operation_a: c_int, operation_b: c_int, m: $size, n: $size, k: $size,
            alpha: *const c_void, a: *const c_void, a_type: c_int, lda: $size, b: *const c_void, b_type: c_int,
            ldb: $size, beta: *const c_void, c: *mut c_void, c_type: c_int, ldc: $size, compute: c_int,
            algorithm: c_int,
        ) -> c_int in CUBLAS, or MISSING;
        before |lane| {
            let numbers = Numbers::said(a_type, compute);
            let shape = gemm_shape(numbers, handle, [m, n, k], 1, [operation_a, operation_b]);
            gemm::begin(lane, shape, || stream_of(handle))
        };
        after |lane, gemm, result| gemm::end(lane, gemm, result);
    } };

    (@batched $name:ident, $size:ty, $numbers:expr) => { interpose! {
        fn $name(
            handle: cublasHandle_t, operation_a: c_int, operation_b: c_int, m: $size, n: $size, k: $size,
            alpha: *const c_void, a: *const c_void, lda: $size, b: *const c_void, ldb: $size, beta: *const c_void,
            c: *const c_void, ldc: $size, batch: $size,
        ) -> c_int in CUBLAS, or MISSING;
        before |lane| {
            let shape = gemm_shape($numbers, handle, [m, n, k], batch, [operation_a, operation_b]);
            gemm::begin(lane, shape, || stream_of(handle))
        };
        after |lane, gemm, result| gemm::end(lane, gemm, result);
    } };

    (@batched_ex $name:ident, $size:ty) => { interpose! {
        fn $name(
            handle: cublasHandle_t, operation_a: c_int, operation_b: c_int, m: $size, n: $size, k: $size,
            alpha: *const c_void, a: *const c_void, a_type: c_int, lda: $size, b: *const c_void, b_type: c_int,
            ldb: $size, beta: *const c_void, c: *const c_void, c_type: c_int, ldc: $size, batch: $size,
            compute: c_int, algorithm: c_int,
        ) -> c_int in CUBLAS, or MISSING;
        before |lane| {
            let numbers = Numbers::said(a_type, compute);
            let shape = gemm_shape(numbers, handle, [m, n, k], batch, [operation_a, operation_b]);
            gemm::begin(lane, shape, || stream_of(handle))
        };
        after |lane, gemm, result| gemm::end(lane, gemm, result);
    } };

    (@strided $name:ident, $size:ty, $numbers:expr) => { interpose! {
        fn $name(
            handle: cublasHandle_t, operation_a: c_int, operation_b: c_int, m: $size, n: $size, k: $size,
            alpha: *const c_void, a: *const c_void, lda: $size, stride_a: i64, b: *const c_void, ldb: $size,
            stride_b: i64, beta: *const c_void, c: *mut c_void, ldc: $size, stride_c: i64, batch: $size,
        ) -> c_int in CUBLAS, or MISSING;
        before |lane| {
            let shape = gemm_shape($numbers, handle, [m, n, k], batch, [operation_a, operation_b]);
            gemm::begin(lane, shape, || stream_of(handle))
        };
        after |lane, gemm, result| gemm::end(lane, gemm, result);
    } };

    (@strided_ex $name:ident, $size:ty) => { interpose! {
        fn $name(
            handle: cublasHandle_t, operation_a: c_int, operation_b: c_int, m: $size, n: $size, k: $size,
            alpha: *const c_void, a: *const c_void, a_type: c_int, lda: $size, stride_a: i64, b: *const c_void,
            b_type: c_int, ldb: $size, stride_b: i64, beta: *const c_void, c: *mut c_void, c_type: c_int, ldc: $size,
            stride_c: i64, batch: $size, compute: c_int, algorithm: c_int,
        ) -> c_int in CUBLAS, or MISSING;
        before |lane| {
            let numbers = Numbers::said(a_type, compute);
            let shape = gemm_shape(numbers, handle, [m, n, k], batch, [operation_a, operation_b]);
            gemm::begin(lane, shape, || stream_of(handle))
        };
        after |lane, gemm, result| gemm::end(lane, gemm, result);
    } };

    (@grouped $name:ident, $size:ty, $numbers:expr) => { interpose! {
        fn $name(
            handle: cublasHandle_t, operations_a: *const c_int, operations_b: *const c_int, m: *const $size,
            n: *const $size, k: *const $size, alphas: *const c_void, a: *const c_void, lda: *const $size,
            b: *const c_void, ldb: *const $size, betas: *const c_void, c: *const c_void, ldc: *const $size,
            group_count: $size, group_sizes: *const $size,
        ) -> c_int in CUBLAS, or MISSING;
        before |lane| {
            // SAFETY: cuBLAS requires arrays in host memory, with an element for each group.
            let groups = unsafe { Groups::read([operations_a, operations_b], [m, n, k], group_sizes, group_count) };
            gemm::begin(lane, groups.shape($numbers, handle), || stream_of(handle))
        };
        after |lane, gemm, result| gemm::end(lane, gemm, result);
    } };

    (@grouped_ex $name:ident, $size:ty) => { interpose! {
        fn $name(
            handle: cublasHandle_t, operations_a: *const c_int, operations_b: *const c_int, m: *const $size,
            n: *const $size, k: *const $size, alphas: *const c_void, a: *const c_void, a_type: c_int,
            lda: *const $size, b: *const c_void, b_type: c_int, ldb: *const $size, betas: *const c_void,
            c: *const c_void, c_type: c_int, ldc: *const $size, group_count: $size, group_sizes: *const $size,
            compute: c_int,
        ) -> c_int in CUBLAS, or MISSING;
        before |lane| {
            // SAFETY: as above.
            let groups = unsafe { Groups::read([operations_a, operations_b], [m, n, k], group_sizes, group_count) };
            gemm::begin(lane, groups.shape(Numbers::said(a_type, compute), handle), || stream_of(handle))
        };
        after |lane, gemm, result| gemm::end(lane, gemm, result);
    } };
}
pub(super) use gemms;
