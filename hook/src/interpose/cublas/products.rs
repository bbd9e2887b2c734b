//! cuBLAS's argument lists for products other than GEMMs, each with 32-bit and 64-bit sizes. Pointers are
//! passed on unread.

/// `KIND ROUTINE NAME, NAME_64 (NUMBERS);` for each function, as in [`super::signature::gemms`].
macro_rules! products {
    ($($kind:ident $routine:ident $name:ident, $wide:ident $(($numbers:expr))?;)*) => {$(
        products! { @$kind $name, c_int, $routine $(, $numbers)? }
        products! { @$kind $wide, i64, $routine $(, $numbers)? }
    )*};

    (@gemv $name:ident, $size:ty, $routine:ident, $numbers:expr) => { interpose! {
        fn $name(
            handle: cublasHandle_t, operation: c_int, m: $size, n: $size, alpha: *const c_void, a: *const c_void,
            lda: $size, x: *const c_void, incx: $size, beta: *const c_void, y: *mut c_void, incy: $size,
        ) -> c_int in CUBLAS, or MISSING;
        before |lane| {
            let shape = with_vector($routine, $numbers, operation, [m, n], 1);
            begin(lane, shape, handle)
        };
        after |lane, gemm, result| end(lane, gemm, result);
    } };

    (@gemv_batched $name:ident, $size:ty, $routine:ident, $numbers:expr) => { interpose! {
        fn $name(
            handle: cublasHandle_t, operation: c_int, m: $size, n: $size, alpha: *const c_void, a: *const c_void,
            lda: $size, x: *const c_void, incx: $size, beta: *const c_void, y: *const c_void, incy: $size,
            batch: $size,
        ) -> c_int in CUBLAS, or MISSING;
        before |lane| {
            let shape = with_vector($routine, $numbers, operation, [m, n], batch);
            begin(lane, shape, handle)
        };
        after |lane, gemm, result| end(lane, gemm, result);
    } };

    (@gemv_strided $name:ident, $size:ty, $routine:ident, $numbers:expr) => { interpose! {
        fn $name(
            handle: cublasHandle_t, operation: c_int, m: $size, n: $size, alpha: *const c_void, a: *const c_void,
            lda: $size, stride_a: i64, x: *const c_void, incx: $size, stride_x: i64, beta: *const c_void,
            y: *mut c_void, incy: $size, stride_y: i64, batch: $size,
        ) -> c_int in CUBLAS, or MISSING;
        before |lane| {
            let shape = with_vector($routine, $numbers, operation, [m, n], batch);
            begin(lane, shape, handle)
        };
        after |lane, gemm, result| end(lane, gemm, result);
    } };

    (@with_c $name:ident, $size:ty, $routine:ident, $numbers:expr) => { interpose! {
        fn $name(
            handle: cublasHandle_t, side: c_int, fill: c_int, m: $size, n: $size, alpha: *const c_void,
            a: *const c_void, lda: $size, b: *const c_void, ldb: $size, beta: *const c_void, c: *mut c_void,
            ldc: $size,
        ) -> c_int in CUBLAS, or MISSING;
        before |lane| {
            let shape = one_sided($routine, $numbers, handle, (side, NOT_TRANSPOSED), [m, n], 1);
            begin(lane, shape, handle)
        };
        after |lane, gemm, result| end(lane, gemm, result);
    } };

    (@triangular $name:ident, $size:ty, $routine:ident, $numbers:expr) => { interpose! {
        fn $name(
            handle: cublasHandle_t, side: c_int, fill: c_int, operation: c_int, diagonal: c_int, m: $size, n: $size,
            alpha: *const c_void, a: *const c_void, lda: $size, b: *const c_void, ldb: $size, c: *mut c_void,
            ldc: $size,
        ) -> c_int in CUBLAS, or MISSING;
        before |lane| {
            let shape = one_sided($routine, $numbers, handle, (side, operation), [m, n], 1);
            begin(lane, shape, handle)
        };
        after |lane, gemm, result| end(lane, gemm, result);
    } };

    (@solve $name:ident, $size:ty, $routine:ident, $numbers:expr) => { interpose! {
        fn $name(
            handle: cublasHandle_t, side: c_int, fill: c_int, operation: c_int, diagonal: c_int, m: $size, n: $size,
            alpha: *const c_void, a: *const c_void, lda: $size, b: *mut c_void, ldb: $size,
        ) -> c_int in CUBLAS, or MISSING;
        before |lane| {
            let shape = one_sided($routine, $numbers, handle, (side, operation), [m, n], 1);
            begin(lane, shape, handle)
        };
        after |lane, gemm, result| end(lane, gemm, result);
    } };

    (@solve_batched $name:ident, $size:ty, $routine:ident, $numbers:expr) => { interpose! {
        fn $name(
            handle: cublasHandle_t, side: c_int, fill: c_int, operation: c_int, diagonal: c_int, m: $size, n: $size,
            alpha: *const c_void, a: *const c_void, lda: $size, b: *const c_void, ldb: $size, batch: $size,
        ) -> c_int in CUBLAS, or MISSING;
        before |lane| {
            let shape = one_sided($routine, $numbers, handle, (side, operation), [m, n], batch);
            begin(lane, shape, handle)
        };
        after |lane, gemm, result| end(lane, gemm, result);
    } };

    (@of_one $name:ident, $size:ty, $routine:ident, $numbers:expr) => { interpose! {
        fn $name(
            handle: cublasHandle_t, fill: c_int, operation: c_int, n: $size, k: $size, alpha: *const c_void,
            a: *const c_void, lda: $size, beta: *const c_void, c: *mut c_void, ldc: $size,
        ) -> c_int in CUBLAS, or MISSING;
        before |lane| {
            let shape = symmetric($routine, $numbers, handle, operation, [n, k]);
            begin(lane, shape, handle)
        };
        after |lane, gemm, result| end(lane, gemm, result);
    } };

    (@of_one_typed $name:ident, $size:ty, $routine:ident) => { interpose! {
        fn $name(
            handle: cublasHandle_t, fill: c_int, operation: c_int, n: $size, k: $size, alpha: *const c_void,
            a: *const c_void, a_type: c_int, lda: $size, beta: *const c_void, c: *mut c_void, c_type: c_int,
            ldc: $size,
        ) -> c_int in CUBLAS, or MISSING;
        before |lane| {
            let shape = symmetric($routine, Numbers::single(a_type), handle, operation, [n, k]);
            begin(lane, shape, handle)
        };
        after |lane, gemm, result| end(lane, gemm, result);
    } };

    (@of_two $name:ident, $size:ty, $routine:ident, $numbers:expr) => { interpose! {
        fn $name(
            handle: cublasHandle_t, fill: c_int, operation: c_int, n: $size, k: $size, alpha: *const c_void,
            a: *const c_void, lda: $size, b: *const c_void, ldb: $size, beta: *const c_void, c: *mut c_void,
            ldc: $size,
        ) -> c_int in CUBLAS, or MISSING;
        before |lane| {
            let shape = symmetric($routine, $numbers, handle, operation, [n, k]);
            begin(lane, shape, handle)
        };
        after |lane, gemm, result| end(lane, gemm, result);
    } };
}
pub(super) use products;
