/* CUDA calls in exit handlers, registered before and after the first CUDA call. By then the thread-local
 * storage of the main thread is gone. Exit code 6. */
#include "gpu.h"

enum { N = 1024 };

static void *blas, *m[3];

static void use_gpu(const char *who) {
    int failed = 0;
    for (int i = 0; i < 20; i++) failed |= gpu_gemm(blas, N, m[0], m[1], m[2]);
    failed |= gpu_kernel(NULL);
    failed |= cudaDeviceSynchronize();
    printf("%s: %s\n", who, failed ? "failed" : "used the GPU");
    fflush(stdout);
}

static void early(void) { use_gpu("registered before the first call"); }
static void late(void) { use_gpu("registered after the first call"); }

__attribute__((destructor)) static void destructor(void) { use_gpu("destructor"); }

int main(void) {
    gpu_open();
    atexit(early);
    CHECK(cudaSetDevice(0));
    CHECK(cublasCreate_v2(&blas));
    gpu_matrices(N, m);
    use_gpu("main");
    atexit(late);
    exit(6);
}
