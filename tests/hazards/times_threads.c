/* A preload makes CUDA calls at the begin of each thread (libthreads.c). The first call may not
 * wait for a thread that waits for itself. Exit code 0. */
#include "calls.h"
#include <time.h>

int main(void) {
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    CHECK(use_everything());
    clock_gettime(CLOCK_MONOTONIC, &to);
    double took = (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) / 1e9;
    printf("%s\n", took < 3 ? "soon" : "late");
    return 0;
}
