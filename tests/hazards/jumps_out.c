/* longjmp out of what a launch or a wait calls back, 1,000 times: calls after it are seen as those before it, and nothing piles up.
 * Exit code 0. */
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
