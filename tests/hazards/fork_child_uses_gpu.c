/* Workers are forked while the hook's thread already runs, but before CUDA is used. Each worker uses the GPU,
 * and so does the parent afterwards. Then one more worker is forked after the parent has used CUDA: CUDA
 * decides what its calls return. Exit code 0. */
#include "gpu.h"
#include <sys/wait.h>
#include <unistd.h>

enum { N = 512, CHILDREN = 3, GEMMS = 50 };

static int use_gpu(int device) {
    void *blas, *m[3];
    CHECK(cudaSetDevice(device));
    CHECK(cublasCreate_v2(&blas));
    gpu_matrices(N, m);
    for (int i = 0; i < GEMMS; i++) CHECK(gpu_gemm(blas, N, m[0], m[1], m[2]));
    CHECK(cudaDeviceSynchronize());
    return 0;
}

static void wait_for(const char *who, pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    printf("%s: exited %d, code %d, signal %d\n", who, WIFEXITED(status), WEXITSTATUS(status), WTERMSIG(status));
}

int main(void) {
    pid_t children[CHILDREN];
    gpu_open();
    /* With the hook, its thread runs from here on. */
    void (*step)(long long);
    *(void **)&step = dlsym(RTLD_DEFAULT, "xpu_top_step");
    if (step) step(-1);
    fflush(stdout);
    for (int i = 0; i < CHILDREN; i++)
        if ((children[i] = fork()) == 0) exit(use_gpu(i + 1) == 0 ? 10 + i : 1);
    for (int i = 0; i < CHILDREN; i++) wait_for("child", children[i]);
    use_gpu(0);
    fflush(stdout);
    pid_t late = fork();
    if (late == 0) {
        void *blas = NULL, *stream = NULL;
        int codes[] = {cudaSetDevice(0), cudaStreamCreateWithFlags(&stream, GPU_NON_BLOCKING), gpu_kernel(NULL),
                       cublasCreate_v2(&blas), gpu_gemm(blas, N, NULL, NULL, NULL), cudaGetLastError()};
        for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) printf("late child, call %zu: %d\n", i, codes[i]);
        fflush(stdout);
        exit(20);
    }
    wait_for("late child", late);
    return use_gpu(0);
}
