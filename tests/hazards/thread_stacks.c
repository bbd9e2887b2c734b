/* Threads with 16 to 64 KiB of stack make the first call of the process, and each its own first call. Each
 * reports how much of its stack was used. Exit code 0. */
#include "calls.h"
#include "figures.h"
#include "painted.h"
#include <pthread.h>

static const size_t sizes[] = {16 << 10, 16 << 10, 32 << 10, 64 << 10};
static const char *names[] = {"first of the process, 16 KiB", "16 KiB", "32 KiB", "64 KiB"};

static void *work(void *unused) {
    CHECK(use_everything());
    return unused;
}

int main(void) {
    for (int i = 0; i < 4; i++) {
        pthread_t thread;
        pthread_attr_t with;
        unsigned char *stack = painted_stack(sizes[i]);
        if (!stack) return 1;
        pthread_attr_init(&with);
        pthread_attr_setstack(&with, stack, sizes[i]);
        if (pthread_create(&thread, &with, work, NULL) != 0) return 1;
        pthread_join(thread, NULL);
        figure(names[i], used_of(stack, sizes[i]));
        printf("%s: done\n", names[i]);
    }
    return 0;
}
