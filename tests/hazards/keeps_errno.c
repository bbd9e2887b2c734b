/* errno is the same after each call as before it: none of these calls sets it. Exit code 0. */
#include "calls.h"
#include <errno.h>

static int wrong;

/* Checks every call, starting with the first of the process. */
#define KEEPS(call)                                                                                             \
    do {                                                                                                        \
        errno = 4242;                                                                                           \
        int code_ = (call);                                                                                     \
        int errno_ = errno;                                                                                     \
        wrong += errno_ != 4242;                                                                                \
        if (code_ || errno_ != 4242) printf("%s: %d, errno %d\n", #call, code_, errno_);                        \
    } while (0)

int main(void) {
    static const float one = 1.0f;
    void *blas = NULL, *communicator = NULL, *memory = NULL, *event = NULL, *stream = NULL;
    unique_id_t id;
    for (int i = 0; i < 50; i++) {
        KEEPS(cudaMalloc(&memory, 64));
        KEEPS(cublasCreate_v2(&blas));
        KEEPS(cublasGemmEx(blas, 0, 0, 8, 8, 8, &one, memory, 14, 8, memory, 14, 8, &one, memory, 14, 8, 68, -1));
        KEEPS(ncclGetUniqueId(&id));
        KEEPS(ncclCommInitRank(&communicator, 1, id, 0));
        KEEPS(ncclAllReduce(memory, memory, 32, 9, 0, communicator, NULL));
        KEEPS(ncclGroupStart());
        KEEPS(ncclGroupEnd());
        KEEPS(cudaStreamCreateWithFlags(&stream, 1));
        KEEPS(cudaEventCreateWithFlags(&event, 0));
        KEEPS(cudaEventRecord(event, stream));
        KEEPS(cudaStreamWaitEvent(stream, event, 0));
        KEEPS(launch());
        KEEPS(cudaStreamSynchronize(stream));
        KEEPS(cudaMemcpyAsync(memory, memory, 0, 3, stream));
        KEEPS(cudaDeviceSynchronize());
        KEEPS(cudaEventDestroy(event));
        KEEPS(cudaStreamDestroy(stream));
        KEEPS(ncclCommDestroy(communicator));
        KEEPS(cublasDestroy_v2(blas));
        KEEPS(cudaFree(memory));
    }
    printf("%d wrong\n", wrong);
    return 0;
}
