/* Ends as its argument says, after the GPU was used: by a signal with the default action or with the
 * program's handler, by `_exit`, in a forked child, or by a stack overflow. */
#define _GNU_SOURCE
#include "gpu.h"
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void on_signal(int signal) {
    static const char said[] = "the program's own handler\n";
    if (write(1, said, sizeof said - 1) < 0) _exit(99);
    struct sigaction action = {.sa_handler = SIG_DFL};
    sigaction(signal, &action, NULL);
    raise(signal);
}

static void on_signal_once(int signal) {
    (void)signal;
    static const char said[] = "once\n";
    if (write(1, said, sizeof said - 1) < 0) _exit(99);
}

static volatile int depth;
__attribute__((noinline)) static int deep(int n) {
    volatile char fill[4096];
    fill[n % 4096] = (char)n;
    depth = n;
    return deep(n + 1) + fill[n % 4096];
}

static void *fault(void *unused) {
    (void)unused;
    *(volatile int *)(uintptr_t)16 = 1;
    return NULL;
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    if (strcmp(how, "handled") == 0) {
        struct sigaction action = {.sa_handler = on_signal};
        sigaction(SIGSEGV, &action, NULL);
    }
    if (strcmp(how, "once") == 0) {
        struct sigaction action = {.sa_handler = on_signal_once, .sa_flags = SA_RESETHAND};
        sigaction(SIGSEGV, &action, NULL);
    }
    if (strcmp(how, "ignored") == 0) signal(SIGTERM, SIG_IGN);
    gpu_open();
    void *blas, *m[3];
    CHECK(cudaSetDevice(0));
    CHECK(cublasCreate_v2(&blas));
    gpu_matrices(512, m);
    CHECK(gpu_gemm(blas, 512, m[0], m[1], m[2]));
    CHECK(cudaDeviceSynchronize());
    printf("%s\n", how);
    fflush(stdout);
    if (strcmp(how, "handled") == 0 || strcmp(how, "once") == 0 || strcmp(how, "fault") == 0) fault(NULL);
    if (strcmp(how, "thread") == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, fault, NULL);
        pthread_join(thread, NULL);
    }
    if (strcmp(how, "abort") == 0) abort();
    if (strcmp(how, "divide") == 0) raise(SIGFPE);
    if (strcmp(how, "overflow") == 0) return deep(0);
    if (strcmp(how, "term") == 0) kill(getpid(), SIGTERM);
    if (strcmp(how, "ignored") == 0) {
        kill(getpid(), SIGTERM);
        return 4;
    }
    if (strcmp(how, "_exit") == 0) _exit(5);
    if (strcmp(how, "fork") == 0 || strcmp(how, "vfork") == 0) {
        pid_t child = strcmp(how, "fork") == 0 ? fork() : vfork();
        if (child == 0) {
            if (strcmp(how, "vfork") == 0) _exit(6);
            fault(NULL);
        }
        int status = 0;
        waitpid(child, &status, 0);
        printf("child: exit %d, signal %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1,
               WIFSIGNALED(status) ? WTERMSIG(status) : 0);
        return 0;
    }
    return 3;
}
