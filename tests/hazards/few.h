/* Shared by the programs that run short of a resource: starts one child for each amount of the resource, and
 * prints how each child ended. */
#ifndef FEW_H
#define FEW_H

#include "gpu.h"
#include <sys/wait.h>
#include <unistd.h>

/* Multiplies until the hook's thread must have run. */
static int keep_multiplying(void *blas, int n, void *m[3]) {
    for (int i = 0; i < 40; i++) {
        CHECK(gpu_gemm(blas, n, m[0], m[1], m[2]));
        usleep(10 * 1000);
    }
    CHECK(cudaDeviceSynchronize());
    return 0;
}

/* Runs `use_gpu_with` for 0, 1, 2, ... in one process each, all at once, and prints how each ended. */
static int try_amounts(const char *of, int most, int (*use_gpu_with)(int)) {
    gpu_open();
    fflush(stdout);
    pid_t *children = calloc(most, sizeof *children);
    for (int n = 0; n < most; n++)
        if ((children[n] = fork()) == 0) exit(use_gpu_with(n));
    for (int n = 0; n < most; n++) {
        int status = 0;
        waitpid(children[n], &status, 0);
        printf("%d %s: exited %d, code %d, signal %d\n", n, of, WIFEXITED(status), WEXITSTATUS(status),
               WTERMSIG(status));
    }
    free(children);
    return 0;
}

#endif
