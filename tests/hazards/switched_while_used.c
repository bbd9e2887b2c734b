/* One thread switches the hook off and on while another is inside any of its calls or groups. Without the
 * hook there is no switch. Exit code 0. */
#include "gpu.h"
#include <pthread.h>

enum { N = 512, ROUNDS = 2000, COUNT = 1 << 16 };

static volatile int done;

static void *flip(void *set_enabled) {
    void (*set)(int) = (void (*)(int))set_enabled;
    for (int on = 0; !done; on = !on)
        if (set) set(on);
    if (set) set(1);
    return NULL;
}

int main(void) {
    gpu_open();
    void *blas, *comm, *m[3];
    gpu_unique_id id;
    pthread_t thread;
    CHECK(cudaSetDevice(0));
    CHECK(cublasCreate_v2(&blas));
    CHECK(ncclGetUniqueId(&id));
    CHECK(ncclCommInitRank(&comm, 1, id, 0));
    gpu_matrices(N, m);
    if (pthread_create(&thread, NULL, flip, dlsym(RTLD_DEFAULT, "xpu_top_set_enabled")) != 0) return 1;
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(gpu_gemm(blas, N, m[0], m[1], m[2]));
        CHECK(gpu_kernel(NULL));
        CHECK(ncclGroupStart());
        CHECK(ncclAllReduce(m[0], m[0], COUNT, GPU_NCCL_BF16, GPU_NCCL_SUM, comm, NULL));
        CHECK(ncclAllReduce(m[0], m[0], COUNT, GPU_NCCL_BF16, GPU_NCCL_SUM, comm, NULL));
        CHECK(ncclGroupEnd());
    }
    done = 1;
    pthread_join(thread, NULL);
    CHECK(cudaDeviceSynchronize());
    CHECK(ncclCommDestroy(comm));
    printf("%d rounds\n", ROUNDS);
    return 0;
}
