/* longjmp out of a callback of a launch or a wait, 1,000 times. The hook observes later calls like earlier
 * ones, and keeps no state of the calls that were left. Exit code 0. */
#include "calls.h"
#include <setjmp.h>

static jmp_buf back;

static void jump(void *unused) {
    (void)unused;
    longjmp(back, 1);
}

int main(void) {
    volatile int jumps = 0;
    for (volatile int i = 0; i < 1000; i++) {
        if (setjmp(back) != 0) {
            jumps++;
            continue;
        }
        if (i % 2) {
            CHECK(launch_with(jump, NULL));
        } else {
            CHECK(cudaLaunchHostFunc(NULL, jump, NULL));
            CHECK(cudaDeviceSynchronize());
        }
    }
    CHECK(use_everything());
    printf("%d jumps\n", (int)jumps);
    return 0;
}
