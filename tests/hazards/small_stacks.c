/* Threads with the smallest stack, most of it used, and no CUDA call. What a library keeps for each thread
 * reduces this stack. Exit code 0. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { THREADS = 20, STACK = 16 << 10, USED = 9 << 10 };

static void *use(void *seed) {
    volatile char frame[USED];
    size_t sum = 0;
    for (int i = USED - 1; i >= 0; i--) frame[i] = (char)(i + (size_t)seed);
    for (int i = 0; i < USED; i++) sum += frame[i] == (char)(i + (size_t)seed);
    return (void *)sum;
}

int main(void) {
    pthread_attr_t small;
    size_t sum = 0;
    pthread_attr_init(&small);
    printf("stack: %d\n", pthread_attr_setstacksize(&small, STACK));
    for (size_t i = 0; i < THREADS; i++) {
        pthread_t thread;
        void *answer;
        int refused = pthread_create(&thread, &small, use, (void *)i);
        if (refused) {
            printf("thread %zu: %d\n", i, refused);
            return 1;
        }
        pthread_join(thread, &answer);
        sum += (size_t)answer;
    }
    printf("%zu bytes used\n", sum);
    return 0;
}
