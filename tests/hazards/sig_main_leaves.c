/* `main` ends by pthread_exit(). The process ends with the program's last thread, as if that thread had
 * called exit(0). Exit code 0. */
#include "gpu.h"
#include <pthread.h>
#include <unistd.h>

static void at_exit(void) { printf("at exit\n"); }

static void *work(void *unused) {
    for (int i = 0; i < 20; i++) {
        CHECK(gpu_kernel(NULL));
        usleep(10 * 1000);
    }
    printf("the last thread ends\n");
    return unused;
}

int main(void) {
    gpu_open();
    void *memory;
    CHECK(cudaSetDevice(0));
    CHECK(cudaMalloc(&memory, 1 << 20));
    CHECK(gpu_kernel(NULL));
    atexit(at_exit);
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, NULL) != 0) return 1;
    printf("main leaves\n");
    pthread_exit(NULL);
}
