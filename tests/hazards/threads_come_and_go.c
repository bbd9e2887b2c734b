/* 2,000 threads, each of which makes a few launches and ends. The hook must not keep a thread's state for
 * ever. The program continues when the hook has no more space for such state. Exit code 0. */
#include "gpu.h"
#include <pthread.h>

enum { THREADS = 2000, AT_ONCE = 20, N = 256 };

static void *m[3];

static void *work(void *failures) {
    void *blas;
    int failed = cudaSetDevice(0);
    failed |= cublasCreate_v2(&blas);
    for (int i = 0; i < 5; i++) failed |= gpu_gemm(blas, N, m[0], m[1], m[2]) | gpu_kernel(NULL);
    failed |= cudaStreamSynchronize(NULL);
    failed |= cublasDestroy_v2(blas);
    if (failed) __atomic_add_fetch((int *)failures, 1, __ATOMIC_RELAXED);
    return NULL;
}

int main(void) {
    gpu_open();
    int failures = 0;
    CHECK(cudaSetDevice(0));
    gpu_matrices(N, m);
    for (int i = 0; i < THREADS; i += AT_ONCE) {
        pthread_t threads[AT_ONCE];
        for (int k = 0; k < AT_ONCE; k++)
            if (pthread_create(&threads[k], NULL, work, &failures) != 0) return 1;
        for (int k = 0; k < AT_ONCE; k++) pthread_join(threads[k], NULL);
    }
    CHECK(cudaDeviceSynchronize());
    printf("%d threads, %d failed\n", THREADS, failures);
    return 0;
}
