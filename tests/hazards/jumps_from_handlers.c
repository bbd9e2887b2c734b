/* siglongjmp out of a launch, from a handler on the thread's own stack and from one on an alternate stack.
 * Then GEMMs follow, from the frame that was jumped to and from a frame far below the call that was left.
 * Exit code 0. */
#include "calls.h"
#include <setjmp.h>
#include <signal.h>

enum { BEFORE = 100, AFTER = 250, DEEP = 64 };

static sigjmp_buf back;
static char alternate[64 << 10];

static void on_signal(int signal) {
    (void)signal;
    siglongjmp(back, 1);
}

static void raise_here(void *unused) {
    (void)unused;
    raise(SIGUSR1);
}

static int jump(void) {
    if (sigsetjmp(back, 1) == 0) {
        launch_with(raise_here, NULL);
        return 0;
    }
    return 1;
}

static void multiply(void *blas, int count) {
    static const float one = 1.0f;
    static char m[256];
    for (int i = 0; i < count; i++)
        CHECK(cublasGemmEx(blas, 0, 0, 8, 8, 8, &one, m, 14, 8, m, 14, 8, &one, m, 14, 8, 68, -1));
}

static void multiply_below(void *blas, int count, int frames) {
    volatile char frame[128];
    frame[0] = 1;
    if (frames > 0)
        multiply_below(blas, count, frames - 1);
    else
        multiply(blas, count);
    frame[1] = frame[0];
}

int main(void) {
    void *blas;
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    sigaltstack(&stack, NULL);
    CHECK(cudaSetDevice(0));
    CHECK(cublasCreate_v2(&blas));
    multiply(blas, BEFORE);
    int jumps = 0;
    for (int i = 0; i < 4; i++) {
        struct sigaction action = {.sa_handler = on_signal, .sa_flags = i & 1 ? SA_ONSTACK : 0};
        sigaction(SIGUSR1, &action, NULL);
        jumps += jump();
        multiply_below(blas, AFTER, i & 2 ? DEEP : 0);
    }
    printf("%d jumps\n", jumps);
    CHECK(cublasDestroy_v2(blas));
    return 0;
}
