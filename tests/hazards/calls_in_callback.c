/* A callback of a launch makes all calls itself, three levels deep. Exit code 0. */
#include "calls.h"

static int depth, calls;

static void go_deeper(void *unused) {
    (void)unused;
    CHECK(use_everything());
    calls++;
    if (++depth < 3) CHECK(launch_with(go_deeper, NULL));
    depth--;
}

int main(void) {
    for (int i = 0; i < 10; i++) {
        CHECK(launch_with(go_deeper, NULL));
        CHECK(cudaLaunchHostFunc(NULL, go_deeper, NULL));
        CHECK(cudaDeviceSynchronize());
    }
    printf("%d calls, depth %d\n", calls, depth);
    return 0;
}
