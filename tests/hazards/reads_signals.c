/* All threads of the program block signals, and one reads them by signalfd, also those that are faults when the kernel sends them. Sent to the
 * process, each must come there. Exit code 0. */
#include "calls.h"
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

static const int numbers[] = {SIGTRAP, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGSYS, SIGUSR1, SIGUSR2, SIGTERM, SIGINT,
                              SIGHUP,  SIGPROF, SIGXCPU, SIGPIPE, SIGCHLD, SIGQUIT, SIGALRM, SIGWINCH, SIGIO};
enum { NUMBERS = sizeof numbers / sizeof numbers[0], ROUNDS = 12 };

int main(void) {
    sigset_t all;
    setvbuf(stdout, NULL, _IOLBF, 0);
    sigemptyset(&all);
    for (int i = 0; i < NUMBERS; i++) sigaddset(&all, numbers[i]);
    /* As some programs do it: only when the others are there already. */
    CHECK(use_everything());
    usleep(50 * 1000);
    sigprocmask(SIG_BLOCK, &all, NULL);
    int fd = signalfd(-1, &all, 0);
    for (int n = 0; n < ROUNDS * NUMBERS; n++) {
        int i = n % NUMBERS;
        struct signalfd_siginfo info;
        struct pollfd ready = {fd, POLLIN, 0};
        kill(getpid(), numbers[i]);
        if (poll(&ready, 1, 5000) != 1) printf("signal %d did not come\n", numbers[i]);
        else if (read(fd, &info, sizeof info) == sizeof info) printf("signal %d came\n", (int)info.ssi_signo);
        CHECK(use_everything());
        /* Threads that come later are there by then. */
        if (i == 0) usleep(20 * 1000);
    }
    return 0;
}
