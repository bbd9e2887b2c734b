/* Measures the cost of an event, or another item, in front of a kernel: nanoseconds of the launching thread and of
 * the GPU.
 *
 *     cc -O2 event_cost.c -o event_cost -ldl && ./event_cost LIBCUDART
 *
 * Rounds of kernels of some microseconds on one stream, alternately with nothing and with the item in front
 * of each kernel.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { KERNELS = 200, ROUNDS = 101, EVENTS = 64, NO_TIMING = 2, HOST_MAPPED = 2 };

static const char spin[] =
    ".version 6.4\n.target sm_60\n.address_size 64\n"
    ".visible .entry spin_for_a_while(.param .u64 clocks) {\n"
    " .reg .u64 %r<5>;\n .reg .pred %p;\n"
    " ld.param.u64 %r1, [clocks];\n mov.u64 %r2, %clock64;\n"
    "again:\n mov.u64 %r3, %clock64;\n sub.u64 %r4, %r3, %r2;\n"
    " setp.lt.u64 %p, %r4, %r1;\n @%p bra again;\n ret;\n}\n";

#define CALL(name, ...)                                                               \
    do {                                                                              \
        static int (*call)();                                                         \
        if (!call) call = (int (*)())dlsym(RTLD_DEFAULT, #name);                      \
        int code = call ? call(__VA_ARGS__) : -1;                                     \
        if (code) return fprintf(stderr, "%s: %d\n", #name, code), 1;                 \
    } while (0)

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static int compare(const void *a, const void *b) {
    double d = *(const double *)a - *(const double *)b;
    return (d > 0) - (d < 0);
}

static double median(double *values) {
    qsort(values, ROUNDS, sizeof *values, compare);
    return values[ROUNDS / 2];
}

enum item { NOTHING, UNTIMED, TIMED, PAIR, WRITE, ITEMS };
static const char *const names[ITEMS] = {"nothing", "event without timing", "event with timing", "pair with timing",
                                         "cuStreamWriteValue32"};

int main(int count, char **words) {
    if (count < 2) return 64;
    if (!dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) || !dlopen(words[1], RTLD_NOW | RTLD_GLOBAL))
        return fprintf(stderr, "%s\n", dlerror()), 1;
    void *stream, *module, *kernel, *untimed[EVENTS], *timed[EVENTS], *page;
    unsigned long long place;
    CALL(cudaSetDevice, 0);
    CALL(cudaStreamCreateWithFlags, &stream, 1u);
    CALL(cuModuleLoadData, &module, spin);
    CALL(cuModuleGetFunction, &kernel, module, "spin_for_a_while");
    CALL(cudaHostAlloc, &page, (size_t)4096, HOST_MAPPED);
    CALL(cuMemHostGetDevicePointer_v2, &place, page, 0u);
    for (int i = 0; i < EVENTS; i++) {
        CALL(cudaEventCreateWithFlags, &untimed[i], NO_TIMING);
        CALL(cudaEventCreateWithFlags, &timed[i], 0);
    }
    unsigned long long lengths[] = {1000, 8000, 40000};
    for (int length = 0; length < 3; length++) {
        unsigned long long clocks = lengths[length];
        void *parameters[] = {&clocks};
        for (enum item item = UNTIMED; item < ITEMS; item++) {
            double host[2][ROUNDS], whole[2][ROUNDS];
            for (int round = 0; round < 2 * ROUNDS; round++) {
                int with = round % 2;
                enum item now_item = with ? item : NOTHING;
                double in_item = 0, begun = now();
                for (int i = 0; i < KERNELS; i++) {
                    double before = now();
                    switch (now_item) {
                    case UNTIMED: CALL(cudaEventRecord, untimed[i % EVENTS], stream); break;
                    case TIMED: CALL(cudaEventRecord, timed[i % EVENTS], stream); break;
                    case PAIR:
                        CALL(cudaEventRecord, timed[2 * i % EVENTS], stream);
                        CALL(cudaEventRecord, timed[(2 * i + 1) % EVENTS], stream);
                        break;
                    case WRITE: CALL(cuStreamWriteValue32_v2, stream, place, i, 0u); break;
                    default: break;
                    }
                    in_item += now() - before;
                    CALL(cuLaunchKernel, kernel, 1u, 1u, 1u, 1u, 1u, 1u, 0u, stream, (void *)parameters, (void *)0);
                }
                CALL(cudaStreamSynchronize, stream);
                host[with][round / 2] = in_item / KERNELS;
                whole[with][round / 2] = (now() - begun) / KERNELS;
            }
            double without = median(whole[0]);
            printf("kernels of %.1f us, %s: thread %.0f ns, whole %+.0f ns\n", without / 1e3, names[item],
                   median(host[1]) - median(host[0]), median(whole[1]) - without);
        }
    }
    return 0;
}
