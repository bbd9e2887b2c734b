/* Some calls of each CUDA library, for programs linked against the stand-ins in C. */
#ifndef CALLS_H
#define CALLS_H

#include "standins/cuda.h"
#include <stdio.h>
#include <stdlib.h>

/* Ends the program if a call fails. */
#define CHECK(call)                                                                                             \
    do {                                                                                                        \
        int code_ = (call);                                                                                     \
        if (code_ != 0) {                                                                                       \
            printf("%s: %d\n", #call, code_);                                                                   \
            exit(1);                                                                                            \
        }                                                                                                       \
    } while (0)

static const dim3_t one_block = {1, 1, 1};

/* Launches a kernel, and calls `function` during it, if there is one. */
static inline int launch_with(host_function function, void *argument) {
    void *arguments[2];
    arguments[0] = (void *)(size_t)function;
    arguments[1] = argument;
    return cudaLaunchKernel(standin_kernel(), one_block, one_block, arguments, 0, NULL);
}

static inline int launch(void) { return launch_with(NULL, NULL); }

/* Runs a GEMM, a sum over all ranks, a copy and a kernel, and waits for them. Returns the number of the first
 * call that failed. */
static inline int use_everything(void) {
    static const float one = 1.0f;
    void *blas, *communicator, *memory, *event;
    unique_id_t id;
    if (cudaSetDevice(0)) return 1;
    if (cudaMalloc(&memory, 1 << 20)) return 2;
    if (cublasCreate_v2(&blas)) return 3;
    if (cublasGemmEx(blas, 0, 0, 8, 8, 8, &one, memory, 14, 8, memory, 14, 8, &one, memory, 14, 8, 68, -1)) return 4;
    if (ncclGetUniqueId(&id)) return 5;
    if (ncclCommInitRank(&communicator, 1, id, 0)) return 6;
    if (ncclAllReduce(memory, memory, 32, 9, 0, communicator, NULL)) return 7;
    if (cudaMemcpyAsync(memory, (char *)memory + 32, 32, 3, NULL)) return 8;
    if (cudaEventCreateWithFlags(&event, 0)) return 9;
    if (cudaEventRecord(event, NULL)) return 10;
    if (launch()) return 11;
    if (cudaDeviceSynchronize()) return 12;
    if (cudaEventDestroy(event)) return 13;
    if (ncclCommDestroy(communicator)) return 14;
    if (cublasDestroy_v2(blas)) return 15;
    if (cudaFree(memory)) return 16;
    return 0;
}

#endif
