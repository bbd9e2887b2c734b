/* A signal handler on an alternate stack of 16 KiB makes launches: as the first call of the process, and in
 * the middle of other calls. Exit code 0. */
#include "calls.h"
#include "figures.h"
#include "painted.h"
#include <signal.h>

enum { STACK = 16 << 10 };

static volatile sig_atomic_t handled, failed;

static void on_signal(int signal) {
    (void)signal;
    handled++;
    failed += launch() != 0;
}

static void raise_here(void *unused) {
    (void)unused;
    raise(SIGUSR1);
}

int main(void) {
    unsigned char *stack_bytes = painted_stack(STACK);
    stack_t stack = {.ss_sp = stack_bytes, .ss_size = STACK};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    sigaltstack(&stack, NULL);
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
    figure("first call", used_of(stack_bytes, STACK));
    for (int i = 0; i < 20; i++) {
        CHECK(launch_with(raise_here, NULL));
        CHECK(use_everything());
        raise(SIGUSR1);
    }
    printf("handled %d, failed %d\n", (int)handled, (int)failed);
    return 0;
}
