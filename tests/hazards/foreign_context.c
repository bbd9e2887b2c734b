/* A rank whose device is not the first. A thread that calls the runtime without choosing a device gets a
 * context on device 0: half a gigabyte of another rank's memory, from every rank of the host. Runs long
 * enough for the hook's thread to read its events. Exit code 0. */
#include <stdint.h>

#include "gpu.h"

enum { DEVICE = 3, N = 8192, GEMMS = 150 };

int main(void) {
    gpu_open();
    uint64_t (*contexts)(void) = (uint64_t (*)(void))dlsym(RTLD_DEFAULT, "simgpu_contexts");
    void *blas, *stream, *m[3];
    CHECK(cudaSetDevice(DEVICE));
    CHECK(cudaStreamCreateWithFlags(&stream, GPU_NON_BLOCKING));
    CHECK(cublasCreate_v2(&blas));
    CHECK(cublasSetStream_v2(blas, stream));
    gpu_matrices(N, m);
    for (int i = 0; i < GEMMS; i++) CHECK(gpu_gemm(blas, N, m[0], m[1], m[2]));
    CHECK(cudaStreamSynchronize(stream));
    printf("contexts on devices: %#llx\n", contexts ? (unsigned long long)contexts() : 0);
    return 0;
}
