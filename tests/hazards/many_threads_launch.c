/* Many threads launch work and stay alive; the argument is their number, 200 by default. Then the last thread
 * measures the cost of a launch, as the shortest of many rounds. Exit code 0. */
#include "calls.h"
#include "figures.h"
#include <pthread.h>
#include <time.h>

enum { MOST = 512, ROUNDS = 50, CALLS = 2000 };

static pthread_barrier_t launched, over;

static long nanoseconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

static void *launch_and_stay(void *unused) {
    CHECK(launch());
    pthread_barrier_wait(&launched);
    pthread_barrier_wait(&over);
    return unused;
}

static void *launch_last(void *unused) {
    long best = 1L << 60;
    CHECK(launch());
    for (int round = 0; round < ROUNDS; round++) {
        long begun = nanoseconds();
        for (int i = 0; i < CALLS; i++) CHECK(launch());
        long took = (nanoseconds() - begun) / CALLS;
        if (took < best) best = took;
    }
    figure("ns a launch", best);
    return unused;
}

int main(int argc, char **argv) {
    static pthread_t threads[MOST];
    int count = argc > 1 ? atoi(argv[1]) : 200;
    if (count > MOST) return 1;
    pthread_t last;
    pthread_barrier_init(&launched, NULL, count + 1);
    pthread_barrier_init(&over, NULL, count + 1);
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, launch_and_stay, NULL) != 0) return 1;
    pthread_barrier_wait(&launched);
    if (pthread_create(&last, NULL, launch_last, NULL) != 0) return 1;
    pthread_join(last, NULL);
    pthread_barrier_wait(&over);
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    printf("%d threads\n", count);
    return 0;
}
