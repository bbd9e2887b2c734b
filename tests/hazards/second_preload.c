/* Two preloads interpose the same calls. Each must see every call once, whichever comes first. Exit code 0.
 */
#include "gpu.h"

enum { N = 512, COUNT = 1 << 10 };

int main(void) {
    gpu_open();
    void *blas, *comm, *m[3];
    gpu_unique_id id;
    CHECK(cudaSetDevice(0));
    CHECK(cublasCreate_v2(&blas));
    CHECK(ncclGetUniqueId(&id));
    CHECK(ncclCommInitRank(&comm, 1, id, 0));
    gpu_matrices(N, m);
    for (int i = 0; i < 100; i++) CHECK(gpu_gemm(blas, N, m[0], m[1], m[2]));
    for (int i = 0; i < 70; i++) CHECK(gpu_kernel(NULL));
    for (int i = 0; i < 30; i++)
        CHECK(ncclAllReduce(m[0], m[0], COUNT, GPU_NCCL_BF16, GPU_NCCL_SUM, comm, NULL));
    CHECK(cudaDeviceSynchronize());
    CHECK(ncclCommDestroy(comm));
    const int *counted = gpu_symbol("counted");
    printf("the other one counted %d GEMMs, %d kernels, %d collectives\n", counted[0], counted[1], counted[2]);
    return 0;
}
