/* Fibres with 16 KiB of stack, as in coroutine libraries. One makes the first call of the process, one the
 * first call of another thread, and others are resumed in turns between their calls. Exit code 0. */
#include "calls.h"
#include "figures.h"
#include "painted.h"
#include <pthread.h>
#include <ucontext.h>

enum { STACK = 16 << 10, FIBRES = 8, TURNS = 5 };

static void once(void) { CHECK(use_everything()); }

/* Runs one round of calls in a new fibre. */
static void *run_in_fibre(void *name) {
    ucontext_t here, fibre;
    unsigned char *stack = painted_stack(STACK);
    if (!stack) exit(1);
    getcontext(&fibre);
    fibre.uc_stack.ss_sp = stack;
    fibre.uc_stack.ss_size = STACK;
    fibre.uc_link = &here;
    makecontext(&fibre, once, 0);
    swapcontext(&here, &fibre);
    figure(name, used_of(stack, STACK));
    printf("%s: done\n", (const char *)name);
    return NULL;
}

static ucontext_t scheduler, fibres[FIBRES];
static int turns[FIBRES];

static void in_turns(int which) {
    while (turns[which] < TURNS) {
        CHECK(launch());
        turns[which]++;
        swapcontext(&fibres[which], &scheduler);
        CHECK(cudaDeviceSynchronize());
    }
}

int main(void) {
    static char first[] = "first of the process", second[] = "first of a thread", third[] = "later";
    pthread_t thread;
    run_in_fibre(first);
    if (pthread_create(&thread, NULL, run_in_fibre, second) != 0) return 1;
    pthread_join(thread, NULL);
    run_in_fibre(third);
    for (int i = 0; i < FIBRES; i++) {
        getcontext(&fibres[i]);
        fibres[i].uc_stack.ss_sp = painted_stack(STACK);
        fibres[i].uc_stack.ss_size = STACK;
        fibres[i].uc_link = &scheduler;
        makecontext(&fibres[i], (void (*)(void))in_turns, 1, i);
    }
    for (int turn = 0; turn <= TURNS; turn++)
        for (int i = 0; i < FIBRES; i++) swapcontext(&scheduler, &fibres[i]);
    printf("turns: %d\n", turns[0] + turns[FIBRES - 1]);
    return 0;
}
