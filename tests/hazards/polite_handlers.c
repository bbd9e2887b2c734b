/* The program sets a handler only for signals that have none, as libraries do. Exit code 0. */
#include "calls.h"
#include "each_signal.h"
#include <unistd.h>

static volatile sig_atomic_t saved;

static void on_signal(int signal) {
    (void)signal;
    saved++;
}

int main(int argc, char **argv) {
    if (argc < 2) return with_each_signal(argv);
    struct sigaction found, action = {.sa_handler = on_signal};
    int signal_number = atoi(argv[1]);
    CHECK(use_everything());
    sigaction(signal_number, NULL, &found);
    if (!(found.sa_flags & SA_SIGINFO) && found.sa_handler == SIG_DFL) sigaction(signal_number, &action, NULL);
    kill(getpid(), signal_number);
    CHECK(use_everything());
    printf("saved %d\n", (int)saved);
    /* signal() returns the handler too. */
    void (*before)(int) = signal(signal_number, SIG_DFL);
    printf("its own: %s\n", before == on_signal ? "yes" : "no");
    return 0;
}
