/* A stream capture in global mode, which an unsafe call of any thread would invalidate. GEMMs before the
 * capture have events that the hook may query, GEMMs in the capture never run, and the program pauses in the
 * middle of it. Exit code 0. */
#include "gpu.h"
#include <unistd.h>

enum { N = 2048, ROUNDS = 3 };

int main(void) {
    gpu_open();
    void *blas, *stream, *side, *fork_event, *join_event, *m[3];
    CHECK(cudaSetDevice(0));
    CHECK(cudaStreamCreateWithFlags(&stream, GPU_NON_BLOCKING));
    CHECK(cudaStreamCreateWithFlags(&side, GPU_NON_BLOCKING));
    CHECK(cudaEventCreateWithFlags(&fork_event, 2));
    CHECK(cudaEventCreateWithFlags(&join_event, 2));
    CHECK(cublasCreate_v2(&blas));
    gpu_matrices(N, m);

    for (int round = 0; round < ROUNDS; round++) {
        void *graph = NULL, *exec = NULL;
        int during = -1, after = -1;
        CHECK(cublasSetStream_v2(blas, stream));
        for (int i = 0; i < 2000; i++) CHECK(gpu_gemm(blas, N, m[0], m[1], m[2]));

        CHECK(cudaStreamBeginCapture(stream, GPU_CAPTURE_GLOBAL));
        for (int i = 0; i < 100; i++) CHECK(gpu_gemm(blas, N, m[0], m[1], m[2]));
        usleep(150 * 1000);
        CHECK(cudaEventRecord(fork_event, stream));
        CHECK(cudaStreamWaitEvent(side, fork_event, 0));
        CHECK(cublasSetStream_v2(blas, side));
        for (int i = 0; i < 100; i++) CHECK(gpu_gemm(blas, N, m[0], m[1], m[2]));
        CHECK(cudaEventRecord(join_event, side));
        CHECK(cudaStreamWaitEvent(stream, join_event, 0));
        CHECK(gpu_kernel(stream));
        CHECK(cudaStreamIsCapturing(stream, &during));
        int ended = cudaStreamEndCapture(stream, &graph);
        CHECK(cudaStreamIsCapturing(stream, &after));
        printf("round %d: capturing %d then %d, end of capture %d, graph %s\n", round, during, after, ended,
               graph ? "made" : "lost");

        CHECK(cudaGraphInstantiate(&exec, graph, 0));
        for (int i = 0; i < 3; i++) CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaGraphExecDestroy(exec));
        CHECK(cudaGraphDestroy(graph));
    }
    printf("last error: %d\n", cudaGetLastError());
    return 0;
}
