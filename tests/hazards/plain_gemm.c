/* An ordinary program: GEMMs, timed by its own events. Exit code 7, so that a wrong code is noticed. */
#include "gpu.h"

enum { N = 1024, GEMMS = 500 };

int main(void) {
    gpu_open();
    void *blas, *stream, *start, *end, *m[3];
    CHECK(cudaSetDevice(0));
    CHECK(cudaStreamCreateWithFlags(&stream, GPU_NON_BLOCKING));
    CHECK(cublasCreate_v2(&blas));
    CHECK(cublasSetStream_v2(blas, stream));
    CHECK(cudaEventCreateWithFlags(&start, 0));
    CHECK(cudaEventCreateWithFlags(&end, 0));
    gpu_matrices(N, m);

    CHECK(cudaEventRecord(start, stream));
    for (int i = 0; i < GEMMS; i++) CHECK(gpu_gemm(blas, N, m[0], m[1], m[2]));
    CHECK(cudaEventRecord(end, stream));
    CHECK(cudaStreamSynchronize(stream));

    float ms = -1;
    CHECK(cudaEventElapsedTime(&ms, start, end));
    printf("%d GEMMs, elapsed time is %s\n", GEMMS, ms > 0 ? "positive" : "wrong");
    printf("last error: %d\n", cudaGetLastError());

    CHECK(cudaEventDestroy(start));
    CHECK(cudaEventDestroy(end));
    CHECK(cublasDestroy_v2(blas));
    CHECK(cudaStreamDestroy(stream));
    for (int i = 0; i < 3; i++) CHECK(cudaFree(m[i]));
    return 7;
}
