/* Errors belong to the program: the code of each failing call, the thread's last error after it, and errno
 * after any call are the same as without the hook. Exit code 0. */
#include "gpu.h"
#include <errno.h>
#include <pthread.h>
#include <unistd.h>

static void report(const char *what, int code) {
    int seen = errno;
    int peeked = cudaPeekAtLastError();
    int got = cudaGetLastError();
    int after = cudaGetLastError();
    printf("%s: code %d, peek %d, last %d, then %d, errno %d\n", what, code, peeked, got, after, seen);
}

static void *other_thread(void *unused) {
    printf("another thread's last error: %d\n", cudaGetLastError());
    return unused;
}

int main(void) {
    gpu_open();
    void *stream, *blas, *event, *m[3];
    void *stale = (void *)0xdead000;
    errno = 42;
    report("set device 0", cudaSetDevice(0));
    report("set device 9999", cudaSetDevice(9999));
    report("stale stream", cudaStreamSynchronize(stale));
    report("stale event", cudaEventRecord(stale, NULL));
    report("stale event with flags", cudaEventRecordWithFlags(stale, NULL, 0));
    report("stale event waited for", cudaEventSynchronize(stale));
    report("stale event waited for by a stream", cudaStreamWaitEvent(NULL, stale, 0));
    report("stale event destroyed", cudaEventDestroy(stale));
    report("free of what nobody allocated", cudaFree(stale));
    report("null answer", cudaMalloc(NULL, 16));
    gpu_dim3 none = {0, 0, 0}, one = {1, 1, 1}, many = {2048, 1, 1};
    report("no blocks", cudaLaunchKernel((void *)&errno, none, one, NULL, 0, NULL));
    report("too many threads", cudaLaunchKernel((void *)&errno, one, many, NULL, 0, NULL));
    report("no function", cudaLaunchKernel(NULL, one, one, NULL, 0, NULL));
    report("kernel on a stale stream", gpu_kernel(stale));

    CHECK(cudaStreamCreateWithFlags(&stream, GPU_NON_BLOCKING));
    CHECK(cublasCreate_v2(&blas));
    CHECK(cublasSetStream_v2(blas, stream));
    CHECK(cudaEventCreateWithFlags(&event, 2));
    gpu_matrices(4096, m);
    for (int i = 0; i < 900; i++) CHECK(gpu_gemm(blas, 4096, m[0], m[1], m[2]));
    CHECK(cudaEventRecord(event, stream));
    report("900 GEMMs", 0);
    report("event not ready", cudaEventQuery(event));
    report("event waited for by a stream", cudaStreamWaitEvent(stream, event, 0));
    report("stale stream that waits", cudaStreamWaitEvent(stale, event, 0));
    report("event recorded on a stale stream", cudaEventRecord(event, stale));
    report("stream not ready", cudaStreamQuery(stream));
    float ms;
    report("elapsed time without timing", cudaEventElapsedTime(&ms, event, event));
    report("negative size", gpu_gemm(blas, -1, m[0], m[1], m[2]));
    report("stale cuBLAS handle", gpu_gemm(stale, 64, m[0], m[1], m[2]));
    report("no communicator", ncclAllReduce(m[0], m[0], 16, GPU_NCCL_BF16, GPU_NCCL_SUM, NULL, stream));
    report("group end alone", ncclGroupEnd());

    /* An error that nobody has read remains after successful calls, and after a while. */
    int failed = cudaSetDevice(9999);
    CHECK(gpu_gemm(blas, 64, m[0], m[1], m[2]));
    CHECK(gpu_kernel(stream));
    usleep(300 * 1000);
    pthread_t thread;
    pthread_create(&thread, NULL, other_thread, NULL);
    pthread_join(thread, NULL);
    errno = 42;
    report("left standing", failed);
    CHECK(cudaStreamSynchronize(stream));
    report("done", cudaStreamQuery(stream));
    printf("%s\n", cudaGetErrorName(GPU_NOT_READY));
    return 0;
}
