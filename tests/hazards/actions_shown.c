/* Prints what sigaction returns for each signal, before the first CUDA call, after it and a while later; also
 * the thread's mask and alternate stack. Exit code 0. */
#define _GNU_SOURCE
#include "calls.h"
#include <signal.h>
#include <unistd.h>

static void own(int signal) { (void)signal; }

static void show(const char *when) {
    sigset_t mask;
    stack_t stack;
    for (int signal = 1; signal < SIGRTMAX; signal++) {
        struct sigaction is;
        if (sigaction(signal, NULL, &is) != 0) continue;
        int plain = !(is.sa_flags & SA_SIGINFO), masked = 0;
        for (int other = 1; other < SIGRTMAX; other++) masked += sigismember(&is.sa_mask, other) == 1;
        printf("%s: %d %s, flags %x, %d masked\n", when, signal,
               plain && is.sa_handler == SIG_DFL   ? "default"
               : plain && is.sa_handler == SIG_IGN ? "ignored"
               : plain && is.sa_handler == own     ? "its own"
                                                   : "somebody's",
               is.sa_flags, masked);
    }
    sigprocmask(SIG_SETMASK, NULL, &mask);
    for (int signal = 1; signal < SIGRTMAX; signal++)
        if (sigismember(&mask, signal) == 1) printf("%s: %d is blocked\n", when, signal);
    sigaltstack(NULL, &stack);
    printf("%s: alternate stack %s\n", when, stack.ss_flags & SS_DISABLE ? "none" : "set");
}

int main(void) {
    struct sigaction action = {.sa_handler = own, .sa_flags = SA_RESTART};
    sigaddset(&action.sa_mask, SIGCHLD);
    sigaction(SIGHUP, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    show("before");
    CHECK(use_everything());
    show("after");
    usleep(200 * 1000);
    CHECK(use_everything());
    show("later");
    return 0;
}
