/* Every floating-point exception is a SIGFPE, also an inexact result. Threads inherit this. Exit code 0. */
#define _GNU_SOURCE
#include "calls.h"
#include <fenv.h>
#include <time.h>

/* As a 32-bit float, this is inexact. */
enum { UNEVEN = (1 << 24) + 1 };

static int use_uneven_sizes(void) {
    static const dim3_t grid = {4099, 4099, 3};
    void *arguments[2] = {NULL, NULL}, *memory;
    if (cudaMalloc(&memory, UNEVEN)) return 1;
    if (cudaMemcpyAsync(memory, memory, UNEVEN, 1, NULL)) return 2;
    if (cudaLaunchKernel(standin_kernel(), grid, one_block, arguments, 0, NULL)) return 3;
    return cudaFree(memory);
}

int main(void) {
    const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
    feenableexcept(FE_ALL_EXCEPT);
    for (int i = 0; i < 20; i++) {
        CHECK(use_everything());
        CHECK(use_uneven_sizes());
        nanosleep(&pause, NULL);
    }
    printf("traps: %d, raised: %d\n", fegetexcept() == FE_ALL_EXCEPT, fetestexcept(FE_ALL_EXCEPT));
    return 0;
}
