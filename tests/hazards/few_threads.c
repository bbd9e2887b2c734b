/* A user may have 0, 1, 2, ... 7 more threads when the GPU is first used. Only a process that may change its
 * user has this limit; any other runs without it. Exit code 0. */
#include "few.h"
#include <sys/resource.h>

enum { MOST = 8, N = 512, FIRST_USER = 61000 };

static int use_gpu_with(int threads) {
    /* One thread is the process itself. The limit is per user, so each child has another user. */
    struct rlimit limit = {threads + 1, threads + 1};
    if (setuid(FIRST_USER + threads) == 0) setrlimit(RLIMIT_NPROC, &limit);
    void *blas, *m[3];
    CHECK(cudaSetDevice(0));
    CHECK(cublasCreate_v2(&blas));
    gpu_matrices(N, m);
    return keep_multiplying(blas, N, m);
}

int main(void) { return try_amounts("threads", MOST, use_gpu_with); }
