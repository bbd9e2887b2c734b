/* The program's own clock stands still, and takes a lock that is held during GPU calls. Built with -rdynamic, so
 * other libraries find it. Exit code 0. */
#include "calls.h"
#include <pthread.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int reads;

int clock_gettime(clockid_t clock, struct timespec *now) {
    (void)clock;
    pthread_mutex_lock(&lock);
    reads++;
    now->tv_sec = 1600000000;
    now->tv_nsec = 0;
    pthread_mutex_unlock(&lock);
    return 0;
}

int main(void) {
    const struct timespec pause = {.tv_nsec = 5 * 1000 * 1000};
    for (int i = 0; i < 20; i++) {
        pthread_mutex_lock(&lock);
        CHECK(use_everything());
        pthread_mutex_unlock(&lock);
        nanosleep(&pause, NULL);
    }
    printf("read by others: %d\n", reads);
    return 0;
}
