/* A rank whose step times can be compared with those of another run. It runs the number of steps in its first
 * argument, each with some CPU work and a GEMM. The file in its second argument gets the step times, the peak
 * memory, and the share of a core that all other threads used; stdout gets none of it. Exit code 7. */
#include "gpu.h"
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { N = 256, MOST = 100000, PAUSE_US = 2000, WORK = 200000 };

static double ms[MOST];

static double clock_ms(clockid_t clock) {
    struct timespec at;
    clock_gettime(clock, &at);
    return at.tv_sec * 1e3 + at.tv_nsec / 1e6;
}

static double now_ms(void) { return clock_ms(CLOCK_MONOTONIC); }

static double others_ms(void) { return clock_ms(CLOCK_PROCESS_CPUTIME_ID) - clock_ms(CLOCK_THREAD_CPUTIME_ID); }

static int ascending(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static long peak_kib(void) {
    char line[256];
    long kib = -1;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        if (sscanf(line, "VmHWM: %ld", &kib) == 1) break;
    if (status) fclose(status);
    return kib;
}

int main(int argc, char **argv) {
    int steps = argc > 1 ? atoi(argv[1]) : 100;
    if (steps < 1 || steps > MOST) return GPU_CANNOT_BEGIN;
    gpu_open();
    void (*step)(long long) = (void (*)(long long))dlsym(RTLD_DEFAULT, "xpu_top_step");
    void *blas, *stream, *m[3];
    CHECK(cudaSetDevice(0));
    CHECK(cudaStreamCreateWithFlags(&stream, GPU_NON_BLOCKING));
    CHECK(cublasCreate_v2(&blas));
    CHECK(cublasSetStream_v2(blas, stream));
    gpu_matrices(N, m);

    double first = now_ms(), others = others_ms();
    volatile unsigned long sum = 0;
    for (int i = 0; i < steps; i++) {
        double began = now_ms();
        for (unsigned long k = 0; k < WORK; k++) sum += k * i;
        CHECK(gpu_gemm(blas, N, m[0], m[1], m[2]));
        CHECK(cudaStreamSynchronize(stream));
        if (step) step(i + 1);
        ms[i] = now_ms() - began;
        usleep(PAUSE_US);
    }

    double share = (others_ms() - others) / (now_ms() - first);
    qsort(ms, steps, sizeof *ms, ascending);
    FILE *figures = argc > 2 ? fopen(argv[2], "w") : NULL;
    if (figures) {
        fprintf(figures, "%.4f %.4f %ld %.5f\n", ms[steps / 2], ms[steps - 1 - steps / 100], peak_kib(), share);
        fclose(figures);
    }
    printf("%d steps, sum %lu, last error %d\n", steps, sum, cudaGetLastError());
    return 7;
}
