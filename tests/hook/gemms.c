/* Calls each entry of cuBLAS that multiplies matrices once, with its own m: 8 for the first entry, 16 for the
 * second, and so on. Then calls each once more, with a leading dimension of C that is too small. Prints what each
 * call returned. Works with the stand-in and with the real library. */
#include "../hazards/gpu.h"
#include <stdint.h>
#include <string.h>

enum { N = 24, K = 40, BATCH = 3, BYTES = 1 << 20 };
enum { BF16 = 14, COMPLEX = 4, COMPUTE = 68, DEFAULT = -1 };

static void *blas, *matrix, *pointers;
static const double scale[2]; /* zero in every type */

#define HEAD(I) void *, int, int, I, I, I, const void *
#define TYPED(I) const void *, int, I
#define PLAIN(I) const void *, I
#define STRIDED(I) const void *, I, long long

#define EACH_SIZE(F) F(int, ) F(int64_t, _64)
#define ENTRIES(I, tail)                                                                                        \
    static int one##tail(void *f, int a, int b, I m, I ldc) {                                                   \
        I lda = a ? K : m, ldb = b ? N : K;                                                                     \
        return ((int (*)(HEAD(I), PLAIN(I), PLAIN(I), const void *, void *, I))f)(                              \
            blas, a, b, m, N, K, scale, matrix, lda, matrix, ldb, scale, matrix, ldc);                          \
    }                                                                                                           \
    static int typed##tail(void *f, int type, int a, int b, I m, I ldc) {                                       \
        I lda = a ? K : m, ldb = b ? N : K;                                                                     \
        return ((int (*)(HEAD(I), TYPED(I), TYPED(I), const void *, void *, int, I))f)(                         \
            blas, a, b, m, N, K, scale, matrix, type, lda, matrix, type, ldb, scale, matrix, type, ldc);        \
    }                                                                                                           \
    static int ex##tail(void *f, int a, int b, I m, I ldc) {                                                    \
        I lda = a ? K : m, ldb = b ? N : K;                                                                     \
        return ((int (*)(HEAD(I), TYPED(I), TYPED(I), const void *, void *, int, I, int, int))f)(               \
            blas, a, b, m, N, K, scale, matrix, BF16, lda, matrix, BF16, ldb, scale, matrix, BF16, ldc, COMPUTE, \
            DEFAULT);                                                                                           \
    }                                                                                                           \
    static int batch##tail(void *f, int a, int b, I m, I ldc) {                                                 \
        I lda = a ? K : m, ldb = b ? N : K;                                                                     \
        return ((int (*)(HEAD(I), PLAIN(I), PLAIN(I), const void *, void *, I, I))f)(                           \
            blas, a, b, m, N, K, scale, pointers, lda, pointers, ldb, scale, pointers, ldc, BATCH);             \
    }                                                                                                           \
    static int batch_ex##tail(void *f, int a, int b, I m, I ldc) {                                              \
        I lda = a ? K : m, ldb = b ? N : K;                                                                     \
        return ((int (*)(HEAD(I), TYPED(I), TYPED(I), const void *, void *, int, I, I, int, int))f)(            \
            blas, a, b, m, N, K, scale, pointers, BF16, lda, pointers, BF16, ldb, scale, pointers, BF16, ldc,   \
            BATCH, COMPUTE, DEFAULT);                                                                           \
    }                                                                                                           \
    static int strided##tail(void *f, int a, int b, I m, I ldc) {                                               \
        I lda = a ? K : m, ldb = b ? N : K;                                                                     \
        return ((int (*)(HEAD(I), STRIDED(I), STRIDED(I), const void *, void *, I, long long, I))f)(            \
            blas, a, b, m, N, K, scale, matrix, lda, 0, matrix, ldb, 0, scale, matrix, ldc, m *N, BATCH);       \
    }                                                                                                           \
    static int strided_ex##tail(void *f, int a, int b, I m, I ldc) {                                            \
        I lda = a ? K : m, ldb = b ? N : K;                                                                     \
        return ((int (*)(HEAD(I), const void *, int, I, long long, const void *, int, I, long long,             \
                         const void *, void *, int, I, long long, I, int, int))f)(                              \
            blas, a, b, m, N, K, scale, matrix, BF16, lda, 0, matrix, BF16, ldb, 0, scale, matrix, BF16, ldc,   \
            m *N, BATCH, COMPUTE, DEFAULT);                                                                     \
    }                                                                                                           \
    /* One GEMM of m, two of 2 m. */                                                                            \
    static int groups##tail(void *f, int a, int b, I m, I ldc) {                                                \
        int as[2] = {a, a}, bs[2] = {b, b};                                                                     \
        I ms[2] = {m, 2 * m}, ns[2] = {N, N}, ks[2] = {K, K}, sizes[2] = {1, 2};                                \
        I lda[2] = {a ? K : m, a ? K : 2 * m}, ldb[2] = {b ? N : K, b ? N : K}, ldcs[2] = {ldc, 2 * ldc};       \
        return ((int (*)(void *, int *, int *, I *, I *, I *, const void *, void *, I *, void *, I *,           \
                         const void *, void *, I *, I, I *))f)(blas, as, bs, ms, ns, ks, scale, pointers, lda,  \
                                                               pointers, ldb, scale, pointers, ldcs, 2, sizes); \
    }                                                                                                           \
    static int groups_ex##tail(void *f, int a, int b, I m, I ldc) {                                             \
        int as[2] = {a, a}, bs[2] = {b, b};                                                                     \
        I ms[2] = {m, 2 * m}, ns[2] = {N, N}, ks[2] = {K, K}, sizes[2] = {1, 2};                                \
        I lda[2] = {a ? K : m, a ? K : 2 * m}, ldb[2] = {b ? N : K, b ? N : K}, ldcs[2] = {ldc, 2 * ldc};       \
        return ((int (*)(void *, int *, int *, I *, I *, I *, const void *, void *, int, I *, void *, int, I *, \
                         const void *, void *, int, I *, I, I *, int))f)(                                       \
            blas, as, bs, ms, ns, ks, scale, pointers, BF16, lda, pointers, BF16, ldb, scale, pointers, BF16,   \
            ldcs, 2, sizes, COMPUTE);                                                                           \
    }                                                                                                           \
    static int of_bf16##tail(void *f, int a, int b, I m, I ldc) { return typed##tail(f, BF16, a, b, m, ldc); }  \
    static int of_complex##tail(void *f, int a, int b, I m, I ldc) { return typed##tail(f, COMPLEX, a, b, m, ldc); }
EACH_SIZE(ENTRIES)

#define ALL(F)                                                                                                  \
    F(one, cublasHgemm) F(one, cublasSgemm_v2) F(one, cublasDgemm_v2) F(one, cublasCgemm_v2)                    \
    F(one, cublasZgemm_v2) F(one, cublasCgemm3m) F(one, cublasZgemm3m)                                          \
    F(of_bf16, cublasSgemmEx) F(of_complex, cublasCgemmEx) F(of_complex, cublasCgemm3mEx) F(ex, cublasGemmEx)   \
    F(batch, cublasHgemmBatched) F(batch, cublasSgemmBatched) F(batch, cublasDgemmBatched)                      \
    F(batch, cublasCgemmBatched) F(batch, cublasZgemmBatched) F(batch, cublasCgemm3mBatched)                    \
    F(batch_ex, cublasGemmBatchedEx)                                                                            \
    F(strided, cublasHgemmStridedBatched) F(strided, cublasSgemmStridedBatched)                                 \
    F(strided, cublasDgemmStridedBatched) F(strided, cublasCgemmStridedBatched)                                 \
    F(strided, cublasZgemmStridedBatched) F(strided, cublasCgemm3mStridedBatched)                               \
    F(strided_ex, cublasGemmStridedBatchedEx)                                                                   \
    F(groups, cublasSgemmGroupedBatched) F(groups, cublasDgemmGroupedBatched)                                   \
    F(groups_ex, cublasGemmGroupedBatchedEx)

#define CALL(kind, name) call(#name, kind, NULL); call(#name "_64", NULL, kind##_64);

static int called;

static void call(const char *name, int (*narrow)(void *, int, int, int, int),
                 int (*wide)(void *, int, int, int64_t, int64_t)) {
    void *entry = gpu_symbol(name);
    int a = called & 1, b = called >> 1 & 1, m = 8 * ++called;
    int answer = narrow ? narrow(entry, a, b, m, m) : wide(entry, a, b, m, m);
    int refusal = narrow ? narrow(entry, a, b, m, m - 1) : wide(entry, a, b, m, m - 1);
    printf("%s %d %d%d answered %d, then %d\n", name, m, a, b, answer, refusal);
}

int main(void) {
    void *host[BATCH], *stream;
    gpu_open();
    CHECK(cudaSetDevice(0));
    CHECK(cudaStreamCreateWithFlags(&stream, GPU_NON_BLOCKING));
    CHECK(cudaMalloc(&matrix, BYTES));
    CHECK(cudaMalloc(&pointers, sizeof host));
    for (int i = 0; i < BATCH; i++) host[i] = matrix;
    CHECK(cudaMemcpyAsync(pointers, host, sizeof host, GPU_HOST_TO_DEVICE, stream));
    CHECK(cublasCreate_v2(&blas));
    CHECK(cublasSetStream_v2(blas, stream));
    ALL(CALL)
    CHECK(cudaStreamSynchronize(stream));
    printf("last error %d\n", cudaGetLastError());
    return 0;
}
