/* The calls of CUDA, cuBLAS and NCCL that these stand-ins have, for programs linked against them. */
#ifndef STANDIN_CUDA_H
#define STANDIN_CUDA_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct { unsigned x, y, z; } dim3_t;
typedef struct { char bytes[128]; } unique_id_t;
typedef void (*host_function)(void *);

enum {
    CUDA_OK = 0,
    /* What a copy of the runtime returns for an object of another copy. */
    CUDA_NOT_MINE = 98,
    CUDA_NOT_READY = 600,
    /* A flag of cudaStreamCreateWithFlags: the work on this stream never ends. */
    STREAM_NEVER_ENDS = 0x100,
};

int cudaSetDevice(int device);
int cudaGetDevice(int *device);
int cudaGetDeviceCount(int *count);
int cudaMalloc(void **place, size_t bytes);
int cudaFree(void *memory);
int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream);
int cudaMemset(void *memory, int value, size_t bytes);
int cudaStreamCreateWithFlags(void **place, unsigned flags);
int cudaStreamDestroy(void *stream);
int cudaStreamSynchronize(void *stream);
int cudaStreamQuery(void *stream);
int cudaStreamIsCapturing(void *stream, int *is);
int cudaDeviceSynchronize(void);
int cudaEventCreateWithFlags(void **place, unsigned flags);
int cudaEventRecord(void *event, void *stream);
int cudaEventQuery(void *event);
int cudaEventSynchronize(void *event);
int cudaEventElapsedTime(float *milliseconds, void *from, void *to);
int cudaEventDestroy(void *event);
int cudaStreamWaitEvent(void *stream, void *event, unsigned flags);
int cudaGetLastError(void);
int cudaPeekAtLastError(void);
int cudaRuntimeGetVersion(int *version);
const char *cudaGetErrorName(int code);

/* Before it returns, calls `arguments[0]` with `arguments[1]`, if there are arguments. */
int cudaLaunchKernel(const void *kernel, dim3_t grid, dim3_t block, void **arguments, size_t shared, void *stream);

/* Called by cudaStreamSynchronize, in the waiting thread. */
int cudaLaunchHostFunc(void *stream, host_function function, void *argument);

/* A kernel of the copy that the caller is bound to, and the number of that copy. No preload interposes these
 * names. */
const void *standin_kernel(void);
int standin_answers_from(void);

int cublasCreate_v2(void **place);
int cublasDestroy_v2(void *handle);
int cublasSetStream_v2(void *handle, void *stream);
int cublasGemmEx(void *handle, int transpose_a, int transpose_b, int m, int n, int k, const void *alpha, const void *a,
                 int a_type, int a_rows, const void *b, int b_type, int b_rows, const void *beta, void *c, int c_type,
                 int c_rows, int compute, int algorithm);

int ncclGetVersion(int *version);
int ncclGetUniqueId(unique_id_t *id);
int ncclCommInitRank(void **place, int ranks, unique_id_t id, int rank);
int ncclCommDestroy(void *communicator);
int ncclCommCount(const void *communicator, int *count);
int ncclCommUserRank(const void *communicator, int *rank);
int ncclGroupStart(void);
int ncclGroupEnd(void);
int ncclAllReduce(const void *from, void *to, size_t count, int type, int operation, void *communicator, void *stream);

#ifdef __cplusplus
}
#endif

#endif
