/* The CUDA, cuBLAS and NCCL calls that the programs of this folder make, found at run time.
 *
 * Every function is looked up in the global scope, so a preloaded library is reached as by a program linked
 * against the real libraries. A program links only -ldl and -lpthread. */
#ifndef GPU_H
#define GPU_H

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct { unsigned x, y, z; } gpu_dim3;
typedef struct { char bytes[128]; } gpu_unique_id;

/* The first fields of ncclConfig_t as of 2.27. */
typedef struct {
    size_t size;
    unsigned magic, version;
    int blocking, cga, min_ctas, max_ctas;
    const char *net;
    int split_share, traffic_class;
    const char *name;
} gpu_config;

#define GPU_UNSET (-2147483647 - 1)
#define GPU_CONFIG(blocking, name)                                                                              \
    {sizeof(gpu_config), 0xcafebeef, 22809, blocking, GPU_UNSET, GPU_UNSET, GPU_UNSET, NULL, GPU_UNSET, GPU_UNSET, name}

enum { GPU_BF16 = 14, GPU_COMPUTE_32F = 68, GPU_NCCL_BF16 = 9, GPU_NCCL_SUM = 0 };
enum { GPU_NOT_READY = 600, GPU_CAPTURE_GLOBAL = 0, GPU_NON_BLOCKING = 1, GPU_HOST_TO_DEVICE = 1 };

/* One line per function: the return type, the name, the arguments. */
#define GPU_RUNTIME(F)                                                                                          \
    F(int, cudaSetDevice, (int))                                                                                \
    F(int, cudaGetDevice, (int *))                                                                              \
    F(int, cudaGetDeviceCount, (int *))                                                                         \
    F(int, cudaMalloc, (void **, size_t))                                                                       \
    F(int, cudaFree, (void *))                                                                                  \
    F(int, cudaMemcpyAsync, (void *, const void *, size_t, int, void *))                                        \
    F(int, cudaLaunchKernel, (const void *, gpu_dim3, gpu_dim3, void **, size_t, void *))                       \
    F(int, cudaStreamCreateWithFlags, (void **, unsigned))                                                      \
    F(int, cudaStreamDestroy, (void *))                                                                         \
    F(int, cudaStreamSynchronize, (void *))                                                                     \
    F(int, cudaStreamQuery, (void *))                                                                           \
    F(int, cudaStreamWaitEvent, (void *, void *, unsigned))                                                     \
    F(int, cudaStreamIsCapturing, (void *, int *))                                                              \
    F(int, cudaStreamBeginCapture, (void *, int))                                                               \
    F(int, cudaStreamEndCapture, (void *, void **))                                                             \
    F(int, cudaGraphInstantiate, (void **, void *, unsigned long long))                                         \
    F(int, cudaGraphLaunch, (void *, void *))                                                                   \
    F(int, cudaGraphExecDestroy, (void *))                                                                      \
    F(int, cudaGraphDestroy, (void *))                                                                          \
    F(int, cudaEventCreateWithFlags, (void **, unsigned))                                                       \
    F(int, cudaEventRecord, (void *, void *))                                                                   \
    F(int, cudaEventRecordWithFlags, (void *, void *, unsigned))                                                \
    F(int, cudaEventQuery, (void *))                                                                            \
    F(int, cudaEventSynchronize, (void *))                                                                      \
    F(int, cudaEventElapsedTime, (float *, void *, void *))                                                     \
    F(int, cudaEventDestroy, (void *))                                                                          \
    F(int, cudaDeviceSynchronize, (void))                                                                       \
    F(int, cudaGetLastError, (void))                                                                            \
    F(int, cudaPeekAtLastError, (void))                                                                         \
    F(const char *, cudaGetErrorName, (int))

#define GPU_BLAS(F)                                                                                             \
    F(int, cublasCreate_v2, (void **))                                                                          \
    F(int, cublasDestroy_v2, (void *))                                                                          \
    F(int, cublasSetStream_v2, (void *, void *))                                                                \
    F(int, cublasGemmEx,                                                                                        \
      (void *, int, int, int, int, int, const void *, const void *, int, int, const void *, int, int,           \
       const void *, void *, int, int, int, int))

#define GPU_NCCL(F)                                                                                             \
    F(int, ncclGetUniqueId, (gpu_unique_id *))                                                                  \
    F(int, ncclCommInitRank, (void **, int, gpu_unique_id, int))                                                \
    F(int, ncclCommInitRankConfig, (void **, int, gpu_unique_id, int, gpu_config *))                            \
    F(int, ncclCommInitAll, (void **, int, const int *))                                                        \
    F(int, ncclCommShrink, (void *, int *, int, void **, gpu_config *, int))                                    \
    F(int, ncclCommGrow, (void *, int, const gpu_unique_id *, int, void **, gpu_config *))                      \
    F(int, ncclCommGetAsyncError, (void *, int *))                                                              \
    F(int, ncclCommFinalize, (void *))                                                                          \
    F(int, ncclCommAbort, (void *))                                                                             \
    F(int, ncclAllReduce, (const void *, void *, size_t, int, int, void *, void *))                             \
    F(int, ncclBcast, (void *, size_t, int, int, void *, void *))                                               \
    F(int, ncclSend, (const void *, size_t, int, int, void *, void *))                                          \
    F(int, ncclRecv, (void *, size_t, int, int, void *, void *))                                                \
    F(int, ncclGroupStart, (void))                                                                              \
    F(int, ncclGroupEnd, (void))                                                                                \
    F(int, ncclCommSplit, (void *, int, int, void **, void *))                                                  \
    F(int, ncclCommCount, (void *, int *))                                                                      \
    F(int, ncclCommUserRank, (void *, int *))                                                                   \
    F(int, ncclCommDestroy, (void *))

#define GPU_DECLARE(answer, name, arguments) static answer(*name) arguments __attribute__((unused));
GPU_RUNTIME(GPU_DECLARE)
GPU_BLAS(GPU_DECLARE)
GPU_NCCL(GPU_DECLARE)

/* Exit code of a program that cannot begin. */
enum { GPU_CANNOT_BEGIN = 99 };

static void gpu_load(const char *library) {
    if (!dlopen(library, RTLD_NOW | RTLD_GLOBAL)) {
        fprintf(stderr, "%s\n", dlerror());
        exit(GPU_CANNOT_BEGIN);
    }
}

static void *gpu_symbol(const char *name) {
    void *found = dlsym(RTLD_DEFAULT, name);
    if (!found) {
        fprintf(stderr, "no %s\n", name);
        exit(GPU_CANNOT_BEGIN);
    }
    return found;
}

#define GPU_FIND(answer, name, arguments) name = (answer(*) arguments)gpu_symbol(#name);

/* Loads the libraries and finds the functions; makes no CUDA call. */
static inline void gpu_open(void) {
    gpu_load("libcudart.so.13");
    gpu_load("libcublas.so.13");
    gpu_load("libnccl.so.2");
    GPU_RUNTIME(GPU_FIND)
    GPU_BLAS(GPU_FIND)
    GPU_NCCL(GPU_FIND)
    setvbuf(stdout, NULL, _IOLBF, 0);
}

/* Ends the program if a call fails. */
#define CHECK(call)                                                                                             \
    do {                                                                                                        \
        int code_ = (call);                                                                                     \
        if (code_ != 0) {                                                                                       \
            printf("%s: %d\n", #call, code_);                                                                   \
            exit(1);                                                                                            \
        }                                                                                                       \
    } while (0)

static const float gpu_one __attribute__((unused)) = 1.0f;

/* A bf16 GEMM of n x n matrices on the handle's stream; 2 n^3 operations. */
static inline int gpu_gemm(void *blas, int n, void *a, void *b, void *c) {
    return cublasGemmEx(blas, 0, 0, n, n, n, &gpu_one, a, GPU_BF16, n, b, GPU_BF16, n, &gpu_one, c, GPU_BF16, n,
                        GPU_COMPUTE_32F, -1);
}

/* Allocates three bf16 matrices of n x n. */
static inline void gpu_matrices(int n, void *matrices[3]) {
    for (int i = 0; i < 3; i++) CHECK(cudaMalloc(&matrices[i], (size_t)n * n * 2));
}

/* Launches an empty kernel. The stand-in runs no kernel, so any address will do; a real GPU needs a real one.
 */
static inline int gpu_kernel(void *stream) {
    gpu_dim3 one = {1, 1, 1};
    return cudaLaunchKernel((const void *)&gpu_one, one, one, NULL, 0, stream);
}

#endif
