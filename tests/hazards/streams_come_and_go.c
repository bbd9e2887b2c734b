/* 5,000 streams, a few at a time, each with a little work. Some are destroyed while their work runs. The hook
 * must not keep a stream's state for ever, or use it for the next stream at the same address. Exit code 0. */
#include "gpu.h"

enum { STREAMS = 5000, AT_ONCE = 10, N = 256, COUNT = 1 << 10 };

int main(void) {
    gpu_open();
    void *blas, *comm, *m[3];
    gpu_unique_id id;
    int failures = 0;
    CHECK(cudaSetDevice(0));
    CHECK(cublasCreate_v2(&blas));
    CHECK(ncclGetUniqueId(&id));
    CHECK(ncclCommInitRank(&comm, 1, id, 0));
    gpu_matrices(N, m);
    for (int i = 0; i < STREAMS; i += AT_ONCE) {
        void *streams[AT_ONCE];
        for (int k = 0; k < AT_ONCE; k++) {
            CHECK(cudaStreamCreateWithFlags(&streams[k], GPU_NON_BLOCKING));
            CHECK(cublasSetStream_v2(blas, streams[k]));
            failures += gpu_gemm(blas, N, m[0], m[1], m[2]) != 0;
            failures += ncclAllReduce(m[0], m[0], COUNT, GPU_NCCL_BF16, GPU_NCCL_SUM, comm, streams[k]) != 0;
        }
        for (int k = 0; k < AT_ONCE; k++) {
            if (k % 2) failures += cudaStreamSynchronize(streams[k]) != 0;
            failures += cudaStreamDestroy(streams[k]) != 0;
        }
    }
    CHECK(cudaDeviceSynchronize());
    CHECK(ncclCommDestroy(comm));
    printf("%d streams, %d failed, last error %d\n", STREAMS, failures, cudaGetLastError());
    return 0;
}
