/* A user who may have 0, 1, 2, ... 7 more threads when the GPU is first used. Only a process that may become another
 * user can try; for anybody else all is as usual. Exit code 0. */
#include "few.h"
#include <sys/resource.h>

enum { MOST = 8, N = 512, FIRST_USER = 61000 };

static int use_gpu_with(int threads) {
    /* One for itself. The limit is of a user, so each child is another. */
    struct rlimit limit = {threads + 1, threads + 1};
    if (setuid(FIRST_USER + threads) == 0) setrlimit(RLIMIT_NPROC, &limit);
    void *blas, *m[3];
    CHECK(cudaSetDevice(0));
    CHECK(cublasCreate_v2(&blas));
    gpu_matrices(N, m);
    return keep_multiplying(blas, N, m);
}

int main(void) { return try_amounts("threads", MOST, use_gpu_with); }
