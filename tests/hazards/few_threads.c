/* A user who may have 0, 1, 2, ... 7 more threads when the GPU is first used. Only a process that may become another
 * user can try; for anybody else all is as usual. Exit code 0. */
#include "gpu.h"
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 8, N = 512, FIRST_USER = 61000 };

static int use_gpu_with(int threads) {
    /* One for itself. The limit is of a user, so each child is another. */
    struct rlimit limit = {threads + 1, threads + 1};
    if (setuid(FIRST_USER + threads) == 0) setrlimit(RLIMIT_NPROC, &limit);
    void *blas, *m[3];
    CHECK(cudaSetDevice(0));
    CHECK(cublasCreate_v2(&blas));
    gpu_matrices(N, m);
    for (int i = 0; i < 40; i++) {
        CHECK(gpu_gemm(blas, N, m[0], m[1], m[2]));
        usleep(10 * 1000);
    }
    CHECK(cudaDeviceSynchronize());
    return 0;
}

int main(void) {
    gpu_open();
    fflush(stdout);
    pid_t children[MOST];
    for (int n = 0; n < MOST; n++)
        if ((children[n] = fork()) == 0) exit(use_gpu_with(n));
    for (int n = 0; n < MOST; n++) {
        int status = 0;
        waitpid(children[n], &status, 0);
        printf("%d threads: exited %d, code %d, signal %d\n", n, WIFEXITED(status), WEXITSTATUS(status),
               WTERMSIG(status));
    }
    return 0;
}
