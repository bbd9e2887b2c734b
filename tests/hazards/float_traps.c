/* Every floating-point exception is a SIGFPE, also an inexact result. Threads inherit this. Exit code 0. */
#define _GNU_SOURCE
#include "calls.h"
#include <fenv.h>
#include <time.h>

int main(void) {
    const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
    feenableexcept(FE_ALL_EXCEPT);
    for (int i = 0; i < 20; i++) {
        CHECK(use_everything());
        nanosleep(&pause, NULL);
    }
    printf("traps: %d, raised: %d\n", fegetexcept() == FE_ALL_EXCEPT, fetestexcept(FE_ALL_EXCEPT));
    return 0;
}
