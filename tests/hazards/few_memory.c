/* Little address space is left: before the GPU is first used, right after, or a while after. Then threads
 * that have made no launch so far launch too. The program has allocated what it needs by then. Exit code 0.
 */
#include "gpu.h"
#include <malloc.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4, N = 512, SPARE = 192 << 10, CHUNK = 512 };
enum { BEFORE, RIGHT_AFTER, LATER, MOMENTS };

static const long kilobytes[] = {64, 256, 1024, 4096, 16384, 65536, 262144};
static const char *moments[] = {"before", "right after", "later"};
static pthread_barrier_t ready, go;
static void *blas, *m[3];

/* Gives the calling thread free memory in its malloc arena. */
static void set_aside(void) {
    static __thread void *chunks[SPARE / CHUNK];
    for (int i = 0; i < SPARE / CHUNK; i++) memset(chunks[i] = malloc(CHUNK), 1, CHUNK);
    for (int i = 0; i < SPARE / CHUNK - 1; i++) free(chunks[i]);
}

static void *launch(void *unused) {
    void *own;
    set_aside();
    CHECK(cublasCreate_v2(&own));
    pthread_barrier_wait(&ready);
    pthread_barrier_wait(&go);
    for (int i = 0; i < 100; i++) {
        CHECK(gpu_gemm(own, N, m[0], m[1], m[2]));
        usleep(3000);
    }
    return unused;
}

static void limit(long kilobytes_more) {
    long pages = 0;
    char text[64] = "";
    FILE *statm = fopen("/proc/self/statm", "r");
    if (!statm || !fgets(text, sizeof text, statm)) exit(1);
    fclose(statm);
    pages = atol(text);
    struct rlimit rlimit = {pages * 4096 + kilobytes_more * 1024, RLIM_INFINITY};
    setrlimit(RLIMIT_AS, &rlimit);
}

static int use_gpu(long kilobytes_more, int moment) {
    pthread_t threads[THREADS];
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    /* Uses the library's own handle, which the hook does not interpose: the program is watched only from its
     * first GEMM on. */
    void *runtime = dlopen("libcudart.so.13", RTLD_NOW | RTLD_NOLOAD);
    cudaMalloc = (int (*)(void **, size_t))dlsym(runtime, "cudaMalloc");
    CHECK(cudaSetDevice(0));
    CHECK(cublasCreate_v2(&blas));
    gpu_matrices(N, m);
    set_aside();
    int (*copy)(void *, const void *, size_t, int, void *) =
        (int (*)(void *, const void *, size_t, int, void *))dlsym(runtime, "cudaMemcpyAsync");
    int (*synchronize)(void) = (int (*)(void))dlsym(runtime, "cudaDeviceSynchronize");
    CHECK(copy(m[0], m[1], 64, GPU_HOST_TO_DEVICE, NULL));
    CHECK(synchronize());
    pthread_barrier_init(&ready, NULL, THREADS + 1);
    pthread_barrier_init(&go, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, launch, NULL));
    pthread_barrier_wait(&ready);
    if (moment == BEFORE) limit(kilobytes_more);
    CHECK(gpu_gemm(blas, N, m[0], m[1], m[2]));
    if (moment == LATER) usleep(400 * 1000);
    if (moment != BEFORE) limit(kilobytes_more);
    pthread_barrier_wait(&go);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    CHECK(gpu_gemm(blas, N, m[0], m[1], m[2]));
    usleep(1300 * 1000);
    CHECK(cudaDeviceSynchronize());
    return 0;
}

int main(void) {
    enum { LIMITS = sizeof kilobytes / sizeof kilobytes[0] };
    pid_t children[LIMITS][MOMENTS];
    gpu_open();
    fflush(stdout);
    for (int l = 0; l < LIMITS; l++)
        for (int moment = 0; moment < MOMENTS; moment++)
            if ((children[l][moment] = fork()) == 0) exit(use_gpu(kilobytes[l], moment));
    for (int l = 0; l < LIMITS; l++)
        for (int moment = 0; moment < MOMENTS; moment++) {
            int status = 0;
            waitpid(children[l][moment], &status, 0);
            printf("%ld KiB more, %s: exited %d, code %d, signal %d\n", kilobytes[l], moments[moment], WIFEXITED(status),
                   WEXITSTATUS(status), WTERMSIG(status));
        }
    return 0;
}
