/* Calls each entry of cuBLAS for products other than GEMMs once, with its own first size: 8 for the first entry, 16
 * for the second, and so on. Then calls each once more, with a last argument that is refused. Prints what each call
 * returned. With an argument, entries are looked up in the library; without, in the global scope. Works with the
 * stand-in and with the real library. */
#include "../hazards/gpu.h"
#include <stdint.h>
#include <string.h>

enum { N = 24, BATCH = 3, BYTES = 1 << 24 };
enum { COMPLEX = 4, LEFT = 0, LOWER = 0, UNIT = 1 };

static void *blas, *matrix, *pointers, *library;
static const double scale[2]; /* zero in every type */

#define EACH_SIZE(F) F(int, ) F(int64_t, _64)

/* `s` is the side, `t` the operation, `m` the first size, `bad` makes the last leading dimension or increment too
 * small. */
#define ENTRIES(I, tail)                                                                                        \
    static int gemv##tail(void *f, int s, int t, I m, int bad) {                                                \
        (void)s;                                                                                                \
        return ((int (*)(void *, int, I, I, const void *, const void *, I, const void *, I, const void *,       \
                         void *, I))f)(blas, t, m, N, scale, matrix, m, matrix, 1, scale, matrix, !bad);        \
    }                                                                                                           \
    static int gemvs##tail(void *f, int s, int t, I m, int bad) {                                               \
        (void)s;                                                                                                \
        return ((int (*)(void *, int, I, I, const void *, const void *, I, const void *, I, const void *,       \
                         const void *, I, I))f)(blas, t, m, N, scale, pointers, m, pointers, 1, scale,          \
                                                pointers, !bad, BATCH);                                         \
    }                                                                                                           \
    static int gemvst##tail(void *f, int s, int t, I m, int bad) {                                              \
        (void)s;                                                                                                \
        return ((int (*)(void *, int, I, I, const void *, const void *, I, long long, const void *, I,          \
                         long long, const void *, void *, I, long long, I))f)(                                  \
            blas, t, m, N, scale, matrix, m, 0, matrix, 1, 0, scale, matrix, !bad, m + N, BATCH);               \
    }                                                                                                           \
    static int with_c##tail(void *f, int s, int t, I m, int bad) {                                              \
        (void)t;                                                                                                \
        return ((int (*)(void *, int, int, I, I, const void *, const void *, I, const void *, I, const void *,  \
                         void *, I))f)(blas, s, LOWER, m, N, scale, matrix, s == LEFT ? m : N, matrix, m,       \
                                       scale, matrix, m - bad);                                                 \
    }                                                                                                           \
    static int trmm##tail(void *f, int s, int t, I m, int bad) {                                                \
        return ((int (*)(void *, int, int, int, int, I, I, const void *, const void *, I, const void *, I,      \
                         void *, I))f)(blas, s, LOWER, t, UNIT, m, N, scale, matrix, s == LEFT ? m : N,         \
                                       matrix, m, matrix, m - bad);                                             \
    }                                                                                                           \
    static int trsm##tail(void *f, int s, int t, I m, int bad) {                                                \
        return ((int (*)(void *, int, int, int, int, I, I, const void *, const void *, I, void *, I))f)(        \
            blas, s, LOWER, t, UNIT, m, N, scale, matrix, s == LEFT ? m : N, matrix, m - bad);                  \
    }                                                                                                           \
    static int trsms##tail(void *f, int s, int t, I m, int bad) {                                               \
        return ((int (*)(void *, int, int, int, int, I, I, const void *, const void *, I, void *, I, I))f)(     \
            blas, s, LOWER, t, UNIT, m, N, scale, pointers, s == LEFT ? m : N, pointers, m - bad, BATCH);       \
    }                                                                                                           \
    static int of_one##tail(void *f, int s, int t, I m, int bad) {                                              \
        (void)s;                                                                                                \
        return ((int (*)(void *, int, int, I, I, const void *, const void *, I, const void *, void *, I))f)(    \
            blas, LOWER, t, m, N, scale, matrix, t ? N : m, scale, matrix, m - bad);                            \
    }                                                                                                           \
    static int typed##tail(void *f, int s, int t, I m, int bad) {                                               \
        (void)s;                                                                                                \
        return ((int (*)(void *, int, int, I, I, const void *, const void *, int, I, const void *, void *, int, \
                         I))f)(blas, LOWER, t, m, N, scale, matrix, COMPLEX, t ? N : m, scale, matrix, COMPLEX, \
                               m - bad);                                                                        \
    }                                                                                                           \
    static int of_two##tail(void *f, int s, int t, I m, int bad) {                                              \
        (void)s;                                                                                                \
        return ((int (*)(void *, int, int, I, I, const void *, const void *, I, const void *, I, const void *,  \
                         void *, I))f)(blas, LOWER, t, m, N, scale, matrix, t ? N : m, matrix, t ? N : m,       \
                                       scale, matrix, m - bad);                                                 \
    }
EACH_SIZE(ENTRIES)

#define SDCZ(F, kind, name, tail)                                                                               \
    F(kind, cublasS##name##tail) F(kind, cublasD##name##tail) CZ(F, kind, name, tail)
#define CZ(F, kind, name, tail) F(kind, cublasC##name##tail) F(kind, cublasZ##name##tail)
#define SHORT(F, kind, name)                                                                                    \
    F(kind, cublasHSH##name) F(kind, cublasHSS##name) F(kind, cublasTST##name) F(kind, cublasTSS##name)
#define ALL(F)                                                                                                  \
    SDCZ(F, gemv, gemv, _v2) SDCZ(F, gemvs, gemvBatched, ) SHORT(F, gemvs, gemvBatched)                         \
    SDCZ(F, gemvst, gemvStridedBatched, ) SHORT(F, gemvst, gemvStridedBatched)                                  \
    SDCZ(F, with_c, symm, _v2) CZ(F, with_c, hemm, _v2) SDCZ(F, trmm, trmm, _v2)                                \
    SDCZ(F, trsm, trsm, _v2) SDCZ(F, trsms, trsmBatched, )                                                      \
    SDCZ(F, of_one, syrk, _v2) CZ(F, of_one, herk, _v2)                                                         \
    F(typed, cublasCsyrkEx) F(typed, cublasCsyrk3mEx) F(typed, cublasCherkEx) F(typed, cublasCherk3mEx)         \
    SDCZ(F, of_two, syr2k, _v2) CZ(F, of_two, her2k, _v2)                                                       \
    SDCZ(F, of_two, syrkx, ) CZ(F, of_two, herkx, )

#define CALL(kind, name) call(#name, kind, NULL); call(#name "_64", NULL, kind##_64);

static int called;

static void call(const char *name, int (*narrow)(void *, int, int, int, int),
                 int (*wide)(void *, int, int, int64_t, int)) {
    void *entry = library ? dlsym(library, name) : gpu_symbol(name);
    /* A complex syrk takes no conjugate, a herk nothing else, and a real routine either. */
    int change = strstr(name, "syr") ? 1 : 2;
    int side = called & 1, operation = called >> 1 & 1 ? change : 0, m = 8 * ++called;
    if (!entry) exit(3);
    int answer = narrow ? narrow(entry, side, operation, m, 0) : wide(entry, side, operation, m, 0);
    int refusal = narrow ? narrow(entry, side, operation, m, 1) : wide(entry, side, operation, m, 1);
    printf("%s %d %d%d answered %d, then %d\n", name, m, side, !!operation, answer, refusal);
}

int main(int count, char **arguments) {
    void *host[BATCH], *stream;
    gpu_open();
    if (count > 1) library = dlopen(arguments[1], RTLD_NOW | RTLD_NOLOAD);
    if (count > 1 && !library) return 2;
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
