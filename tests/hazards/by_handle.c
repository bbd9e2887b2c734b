/* NCCL found by dlsym() on its own handle, as by ctypes. Such calls bypass every preloaded library, which
 * must handle streams and communicators whose creation it did not see. Exit code 0. */
#include "gpu.h"

enum { N = 512, ROUNDS = 50, COUNT = 1 << 16 };

int main(void) {
    gpu_open();
    void *nccl = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    int (*init)(void **, int, gpu_unique_id, int);
    int (*reduce)(const void *, void *, size_t, int, int, void *, void *);
    int (*destroy)(void *);
    *(void **)&init = dlsym(nccl, "ncclCommInitRank");
    *(void **)&reduce = dlsym(nccl, "ncclAllReduce");
    *(void **)&destroy = dlsym(nccl, "ncclCommDestroy");
    void *blas, *comm, *m[3];
    gpu_unique_id id;
    CHECK(cudaSetDevice(0));
    CHECK(cublasCreate_v2(&blas));
    gpu_matrices(N, m);
    CHECK(ncclGetUniqueId(&id));
    CHECK(init(&comm, 1, id, 0));
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(gpu_gemm(blas, N, m[0], m[1], m[2]));
        CHECK(reduce(m[0], m[0], COUNT, GPU_NCCL_BF16, GPU_NCCL_SUM, comm, NULL));
        /* An interposed call on a communicator whose creation was not interposed. */
        CHECK(ncclAllReduce(m[0], m[0], COUNT, GPU_NCCL_BF16, GPU_NCCL_SUM, comm, NULL));
        CHECK(ncclGroupStart());
        CHECK(ncclAllReduce(m[0], m[0], COUNT, GPU_NCCL_BF16, GPU_NCCL_SUM, comm, NULL));
        CHECK(ncclGroupEnd());
    }
    CHECK(cudaDeviceSynchronize());
    CHECK(destroy(comm));
    printf("%d rounds\n", ROUNDS);
    return 0;
}
