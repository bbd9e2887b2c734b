/* The program's handler of SIGSEGV, set before the GPU is used, ends the process as the argument says. Before
 * that the program waits for its input, so that a collector knows it. */
#define _GNU_SOURCE
#include "gpu.h"
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

static const char *how;

static void on_fault(int signal) {
    static const char said[] = "the program's own handler\n";
    if (write(1, said, sizeof said - 1) < 0) _exit(99);
    if (strcmp(how, "_exit") == 0) _exit(3);
    if (strcmp(how, "exit") == 0) exit(3);
    if (strcmp(how, "abort") == 0) abort();
    struct sigaction action = {.sa_handler = SIG_DFL};
    sigaction(signal, &action, NULL);
    if (strcmp(how, "raise") == 0) raise(signal);
    if (strcmp(how, "raise at once") == 0) {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, signal);
        sigprocmask(SIG_UNBLOCK, &set, NULL);
        raise(signal);
    }
}

__attribute__((noinline)) static int reach_out(void) { return *(volatile int *)(uintptr_t)0x40; }

int main(int argc, char **argv) {
    how = argc > 1 ? argv[1] : "";
    struct sigaction action = {.sa_handler = on_fault};
    sigaction(SIGSEGV, &action, NULL);
    gpu_open();
    void *blas, *m[3];
    CHECK(cudaSetDevice(0));
    CHECK(cublasCreate_v2(&blas));
    gpu_matrices(256, m);
    char line[16];
/* The program waits for a line of input before it continues. */
    CHECK(gpu_gemm(blas, 256, m[0], m[1], m[2]));
    CHECK(cudaDeviceSynchronize());
    if (!fgets(line, sizeof line, stdin)) return 1;
    if (strcmp(how, "vfork") == 0) {
        if (vfork() == 0) _exit(9);
        CHECK(cudaDeviceSynchronize());
        printf("the child is gone\n");
        for (;;) pause();
    }
    return reach_out();
}
