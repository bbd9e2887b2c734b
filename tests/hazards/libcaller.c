/* A helper of dlopen_local.c: it calls CUDA by plain undefined symbols, as libtorch_cuda does.
 *
 * cc -shared -fPIC libcaller.c -o libcaller.so -L DIR -l:libcublas.so.13 -l:libcudart.so.13 -l:libnccl.so.2
 * DIR holds the libraries under these names. */
#include <stddef.h>

typedef struct { char bytes[128]; } unique_id;

int cudaSetDevice(int);
int cudaMalloc(void **, size_t);
int cudaDeviceSynchronize(void);
int cublasCreate_v2(void **);
int cublasDestroy_v2(void *);
int cublasGemmEx(void *, int, int, int, int, int, const void *, const void *, int, int, const void *, int, int,
                 const void *, void *, int, int, int, int);
int ncclGetUniqueId(unique_id *);
int ncclCommInitRank(void **, int, unique_id, int);
int ncclAllReduce(const void *, void *, size_t, int, int, void *, void *);
int ncclBcast(void *, size_t, int, int, void *, void *);
int ncclCommDestroy(void *);

/* 0, or the number of the call that failed. */
int caller_run(int gemms) {
    enum { N = 1024, BF16 = 14, COMPUTE_32F = 68, NCCL_BF16 = 9 };
    static const float one = 1.0f;
    void *blas, *comm, *m[3];
    unique_id id;
    if (cudaSetDevice(0)) return 1;
    if (cublasCreate_v2(&blas)) return 2;
    for (int i = 0; i < 3; i++)
        if (cudaMalloc(&m[i], (size_t)N * N * 2)) return 3;
    if (ncclGetUniqueId(&id)) return 4;
    if (ncclCommInitRank(&comm, 1, id, 0)) return 5;
    for (int i = 0; i < gemms; i++)
        if (cublasGemmEx(blas, 0, 0, N, N, N, &one, m[0], BF16, N, m[1], BF16, N, &one, m[2], BF16, N, COMPUTE_32F, -1))
            return 6;
    if (ncclAllReduce(m[0], m[0], (size_t)N * N, NCCL_BF16, 0, comm, NULL)) return 7;
    if (ncclBcast(m[0], (size_t)N * N, NCCL_BF16, 0, comm, NULL)) return 8;
    if (cudaDeviceSynchronize()) return 9;
    if (ncclCommDestroy(comm)) return 10;
    if (cublasDestroy_v2(blas)) return 11;
    return 0;
}
