/* The program opens the hook, uses it, and closes it again, as when the Python module is unloaded. The hook's
 * thread and functions must stay mapped. Takes the path of libxpu_hook.so, but opens a preloaded hook if
 * there is one. Exit code 4. */
#include "gpu.h"
#include <unistd.h>

enum { N = 1024, ROUNDS = 3 };

int main(int argc, char **argv) {
    if (argc != 2) return 64;
    const char *preloaded = getenv("LD_PRELOAD"), *path = preloaded ? preloaded : argv[1];
    gpu_open();
    void *blas, *m[3];
    CHECK(cudaSetDevice(0));
    CHECK(cublasCreate_v2(&blas));
    gpu_matrices(N, m);
    for (int round = 0; round < ROUNDS; round++) {
        void *hook = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!hook) {
            fprintf(stderr, "%s\n", dlerror());
            return GPU_CANNOT_BEGIN;
        }
        void (*step)(long long) = (void (*)(long long))dlsym(hook, "xpu_top_step");
        step(-1);
        printf("closed: %d\n", dlclose(hook));
        usleep(120 * 1000);
        step(-1);
        CHECK(gpu_gemm(blas, N, m[0], m[1], m[2]));
    }
    return 4;
}
