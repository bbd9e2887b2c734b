/* The main thread ends by pthread_exit and leaves the work to another thread. The process ends when that
 * thread ends. Exit code 0. */
#include "calls.h"
#include <pthread.h>
#include <unistd.h>

static void *work(void *unused) {
    usleep(50 * 1000);
    CHECK(use_everything());
    printf("the work is done\n");
    fflush(stdout);
    return unused;
}

int main(void) {
    pthread_t thread;
    CHECK(use_everything());
    if (pthread_create(&thread, NULL, work, NULL) != 0) return 1;
    pthread_exit(NULL);
}
