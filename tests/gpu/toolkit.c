/* Runs steps of known kernels, a fill and a copy on the named CUDA runtime, to check a capture with all
 * kernels.
 *
 *     toolkit LIBCUDART SECONDS
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { KERNELS = 10, BYTES = 1 << 20, DEVICE_TO_DEVICE = 3 };

/* Runs for the given number of clocks. */
static const char spin[] =
    ".version 6.4\n.target sm_60\n.address_size 64\n"
    ".visible .entry spin_for_a_while(.param .u64 clocks) {\n"
    " .reg .u64 %r<5>;\n .reg .pred %p;\n"
    " ld.param.u64 %r1, [clocks];\n mov.u64 %r2, %clock64;\n"
    "again:\n mov.u64 %r3, %clock64;\n sub.u64 %r4, %r3, %r2;\n"
    " setp.lt.u64 %p, %r4, %r1;\n @%p bra again;\n ret;\n}\n";

#define CALL(name, ...)                                                               \
    do {                                                                              \
        int (*call)() = (int (*)())dlsym(RTLD_DEFAULT, #name);                        \
        int code = call ? call(__VA_ARGS__) : -1;                                     \
        if (code) return fprintf(stderr, "%s: %d\n", #name, code), 1;                 \
    } while (0)

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int count, char **words) {
    if (count < 3) return 64;
    if (!dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) || !dlopen(words[1], RTLD_NOW | RTLD_GLOBAL))
        return fprintf(stderr, "%s\n", dlerror()), 1;
    int version;
    CALL(cudaRuntimeGetVersion, &version);
    fprintf(stderr, "CUDA runtime %d\n", version);
    void *stream, *from, *to, *module, *kernel;
    CALL(cudaSetDevice, 0);
    CALL(cudaMalloc, &from, (size_t)BYTES);
    CALL(cudaMalloc, &to, (size_t)BYTES);
    CALL(cudaStreamCreateWithFlags, &stream, 1u);
    CALL(cuModuleLoadData, &module, spin);
    CALL(cuModuleGetFunction, &kernel, module, "spin_for_a_while");
    void (*step)(long long) = (void (*)(long long))dlsym(RTLD_DEFAULT, "xpu_top_step");
    unsigned long long clocks = 100000;
    void *parameters[] = {&clocks};
    double end = now() + atof(words[2]);
    long steps = 0;
    while (now() < end) {
        for (int i = 0; i < KERNELS; i++)
            CALL(cuLaunchKernel, kernel, 1u, 1u, 1u, 1u, 1u, 1u, 0u, stream, (void *)parameters, (void *)0);
        CALL(cudaMemsetAsync, from, 0, (size_t)BYTES, stream);
        CALL(cudaMemcpyAsync, to, from, (size_t)BYTES, DEVICE_TO_DEVICE, stream);
        CALL(cudaStreamSynchronize, stream);
        if (step) step(-1);
        steps++;
    }
    fprintf(stderr, "%ld steps\n", steps);
    return 0;
}
