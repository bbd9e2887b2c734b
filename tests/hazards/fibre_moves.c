/* A fibre begins in one thread and continues in another, in the middle of a callback of a launch. Exit code
 * 0. */
#include "calls.h"
#include "painted.h"
#include <pthread.h>
#include <ucontext.h>

enum { STACK = 32 << 10 };

static ucontext_t fibre, starter, finisher;
static int has_moved;

static void leave(void *unused) {
    (void)unused;
    swapcontext(&fibre, &starter);
}

static void begin(void) {
    CHECK(launch_with(leave, NULL));
    CHECK(use_everything());
    has_moved = 1;
    setcontext(&finisher);
}

static void *start(void *unused) {
    swapcontext(&starter, &fibre);
    CHECK(use_everything());
    return unused;
}

static void *finish(void *unused) {
    CHECK(use_everything());
    swapcontext(&finisher, &fibre);
    CHECK(use_everything());
    return unused;
}

int main(void) {
    pthread_t thread;
    getcontext(&fibre);
    fibre.uc_stack.ss_sp = painted_stack(STACK);
    fibre.uc_stack.ss_size = STACK;
    makecontext(&fibre, begin, 0);
    if (pthread_create(&thread, NULL, start, NULL) != 0) return 1;
    pthread_join(thread, NULL);
    if (pthread_create(&thread, NULL, finish, NULL) != 0) return 1;
    pthread_join(thread, NULL);
    printf("moved: %d\n", has_moved);
    return 0;
}
