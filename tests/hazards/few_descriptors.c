/* Processes that may open 0, 1, 2, ... 31 more files when they first use the GPU. A library that cannot open
 * its sockets must do without, and must not change the program's errno. Exit code 0. */
#include "few.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>

enum { MOST = 32, N = 512, LIMIT = 256 };

static int use_gpu_with(int descriptors) {
    struct rlimit limit = {LIMIT, LIMIT};
    setrlimit(RLIMIT_NOFILE, &limit);
    int taken[LIMIT], count = 0;
    while ((taken[count] = open("/dev/null", O_RDONLY)) >= 0) count++;
    for (int i = 0; i < descriptors; i++) close(taken[--count]);
    void *blas, *m[3];
    CHECK(cudaSetDevice(0));
    CHECK(cublasCreate_v2(&blas));
    gpu_matrices(N, m);
    errno = 42;
    CHECK(gpu_gemm(blas, N, m[0], m[1], m[2]));
    if (errno != 42) return 3;
    return keep_multiplying(blas, N, m);
}

int main(void) { return try_amounts("descriptors", MOST, use_gpu_with); }
