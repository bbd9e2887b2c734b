/* Threads are cancelled while they wait for the GPU. Unwinding through the call must run their cleanup
 * handlers. Exit code 0. */
#include "calls.h"
#include <pthread.h>
#include <unistd.h>

enum { THREADS = 4 };

static pthread_barrier_t about_to_wait;
static int put_away;

static void put_it_away(void *unused) {
    (void)unused;
    __atomic_add_fetch(&put_away, 1, __ATOMIC_RELAXED);
}

static void *wait_for_ever(void *unused) {
    void *stream;
    CHECK(use_everything());
    CHECK(cudaStreamCreateWithFlags(&stream, STREAM_NEVER_ENDS));
    pthread_cleanup_push(put_it_away, NULL);
    pthread_barrier_wait(&about_to_wait);
    cudaStreamSynchronize(stream);
    pthread_cleanup_pop(0);
    return unused;
}

int main(void) {
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        void *answer = NULL;
        pthread_barrier_init(&about_to_wait, NULL, 2);
        if (pthread_create(&thread, NULL, wait_for_ever, NULL) != 0) return 1;
        pthread_barrier_wait(&about_to_wait);
        /* Cancels the thread before it waits, or while it waits. */
        if (i % 2) usleep(20 * 1000);
        pthread_cancel(thread);
        pthread_join(thread, &answer);
        printf("cancelled: %s\n", answer == PTHREAD_CANCELED ? "yes" : "no");
    }
    CHECK(use_everything());
    printf("%d put away\n", put_away);
    return 0;
}
