/* Calls that may wait for the GPU invalidate captures, and the later calls fail. Then a capture on the same
 * stream succeeds, and its graph is destroyed before the executable's first launch. Exit code 0. */
#include "gpu.h"

enum { N = 512 };

static void *blas, *stream, *m[3];

static void report(const char *what, int code) {
    int last = cudaGetLastError(), then = cudaGetLastError();
    printf("%s: %d, last error %d, then %d\n", what, code, last, then);
}

static int spoil_by_malloc(void) {
    void *memory = NULL;
    return cudaMalloc(&memory, 16);
}

static int spoil_by_free(void) { return cudaFree((void *)0xdead000); }

static int spoil_by_stream(void) { return cudaStreamSynchronize(stream); }

static int spoil_by_device(void) { return cudaDeviceSynchronize(); }

static void fail(const char *what, int (*spoil)(void)) {
    void *graph = NULL;
    CHECK(cudaStreamBeginCapture(stream, GPU_CAPTURE_GLOBAL));
    CHECK(gpu_gemm(blas, N, m[0], m[1], m[2]));
    int code = spoil();
    int after = gpu_gemm(blas, N, m[0], m[1], m[2]), kernel = gpu_kernel(stream);
    int ended = cudaStreamEndCapture(stream, &graph);
    printf("%s: %d, a GEMM %d, a kernel %d, graph %s\n", what, code, after, kernel, graph ? "made" : "lost");
    report("the end", ended);
    CHECK(gpu_gemm(blas, N, m[0], m[1], m[2]));
    CHECK(cudaStreamSynchronize(stream));
}

int main(void) {
    gpu_open();
    void *graph = NULL, *executable = NULL;
    CHECK(cudaSetDevice(0));
    CHECK(cudaStreamCreateWithFlags(&stream, GPU_NON_BLOCKING));
    CHECK(cublasCreate_v2(&blas));
    CHECK(cublasSetStream_v2(blas, stream));
    gpu_matrices(N, m);
    fail("malloc", spoil_by_malloc);
    fail("free", spoil_by_free);
    fail("stream", spoil_by_stream);
    fail("device", spoil_by_device);
    report("an end without a beginning", cudaStreamEndCapture(stream, &graph));

    CHECK(cudaStreamBeginCapture(stream, GPU_CAPTURE_GLOBAL));
    for (int i = 0; i < 10; i++) CHECK(gpu_gemm(blas, N, m[0], m[1], m[2]));
    CHECK(gpu_kernel(stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    report("the graph again", cudaGraphDestroy(graph));
    for (int i = 0; i < 3; i++) CHECK(cudaGraphLaunch(executable, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaGraphExecDestroy(executable));
    report("the executable afterwards", cudaGraphLaunch(executable, stream));
    return 0;
}
