/* A data loader is forked after CUDA was used, does plain work, and ends by exit() with all its handlers. The
 * parent continues to use the GPU. Exit code 0. */
#include "gpu.h"
#include <sys/wait.h>
#include <unistd.h>

enum { N = 1024, CHILDREN = 4 };

int main(void) {
    gpu_open();
    void *blas, *m[3];
    CHECK(cudaSetDevice(0));
    CHECK(cublasCreate_v2(&blas));
    gpu_matrices(N, m);
    for (int i = 0; i < 50; i++) CHECK(gpu_gemm(blas, N, m[0], m[1], m[2]));

    for (int i = 0; i < CHILDREN; i++) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            long sum = 0;
            for (long k = 0; k < 1000000; k++) sum += k % 7;
            /* What CUDA returns if a forked child calls it nevertheless. */
            int used = cudaDeviceSynchronize();
            exit(sum > 0 && used == 3 ? 10 + i : 1);
        }
        int status = 0;
        waitpid(child, &status, 0);
        printf("child %d: exited %d, code %d\n", i, WIFEXITED(status), WEXITSTATUS(status));
        for (int k = 0; k < 50; k++) CHECK(gpu_gemm(blas, N, m[0], m[1], m[2]));
        CHECK(cudaDeviceSynchronize());
    }
    printf("parent goes on: %d\n", gpu_gemm(blas, N, m[0], m[1], m[2]));
    CHECK(cudaDeviceSynchronize());
    CHECK(cublasDestroy_v2(blas));
    return 0;
}
