/* One thread ends the process by _exit() while another is enqueueing work. Nothing may keep the process
 * alive. Exit code 9. */
#include "gpu.h"
#include <pthread.h>
#include <unistd.h>

enum { N = 1024 };

static void *leave(void *unused) {
    usleep(150 * 1000);
    printf("leaving\n");
    fflush(stdout);
    _exit(9);
    return unused;
}

int main(void) {
    gpu_open();
    void *blas, *m[3];
    CHECK(cudaSetDevice(0));
    CHECK(cublasCreate_v2(&blas));
    gpu_matrices(N, m);
    pthread_t thread;
    if (pthread_create(&thread, NULL, leave, NULL) != 0) return 1;
    for (;;) CHECK(gpu_gemm(blas, N, m[0], m[1], m[2]));
}
