/* A handler for each signal, set after the first CUDA call. It calls the handler that was there before, if
 * there was one, and then saves a checkpoint. Runs without and with an earlier handler of the program. Exit
 * code 0. */
#include "calls.h"
#include "each_signal.h"
#include <unistd.h>

static struct sigaction old;
static volatile sig_atomic_t saved, earlier;

static void on_signal_earlier(int signal) {
    (void)signal;
    earlier++;
}

static void on_signal(int signal, siginfo_t *info, void *context) {
    if (old.sa_flags & SA_SIGINFO) {
        old.sa_sigaction(signal, info, context);
    } else if (old.sa_handler != SIG_DFL && old.sa_handler != SIG_IGN) {
        old.sa_handler(signal);
    }
    saved++;
}

static void go_through(int signal) {
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
    sigaction(signal, &action, &old);
    kill(getpid(), signal);
    CHECK(use_everything());
    raise(signal);
    printf("saved %d, earlier %d, what was there: %s\n", (int)saved, (int)earlier,
           old.sa_flags & SA_SIGINFO      ? "a handler with more"
           : old.sa_handler == SIG_DFL    ? "nothing"
           : old.sa_handler == SIG_IGN    ? "ignored"
           : old.sa_handler == on_signal_earlier ? "the program's own"
                                          : "somebody's");
}

int main(int argc, char **argv) {
    if (argc < 2) return with_each_signal(argv);
    int signal = atoi(argv[1]);
    setvbuf(stdout, NULL, _IOLBF, 0);
    CHECK(use_everything());
    go_through(signal);
    struct sigaction earlier_action = {.sa_handler = on_signal_earlier};
    sigaction(signal, &earlier_action, NULL);
    CHECK(use_everything());
    go_through(signal);
    return 0;
}
