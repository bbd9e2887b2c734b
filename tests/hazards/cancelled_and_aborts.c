/* A thread with a pending cancellation aborts. The process ends by SIGABRT. */
#include "calls.h"
#include <pthread.h>

static void *aborts(void *unused) {
    pthread_cancel(pthread_self());
    abort();
    return unused;
}

int main(void) {
    pthread_t thread;
    CHECK(use_everything());
    if (pthread_create(&thread, NULL, aborts, NULL) != 0) return 1;
    pthread_join(thread, NULL);
    puts("the thread came back");
    return 3;
}
