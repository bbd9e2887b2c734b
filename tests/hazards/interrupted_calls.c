/* A signal interrupts a system call or restarts it, as the program has set. The signal must reach the
 * program's thread, not the hook's. Exit code 0. */
#include "calls.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

static volatile sig_atomic_t alarms;

static void on_alarm(int signal) {
    (void)signal;
    alarms++;
}

static void set(int flags) {
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = flags};
    struct itimerval once = {{0, 0}, {0, 30 * 1000}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &once, NULL);
}

int main(void) {
    int ends[2];
    char byte;
    CHECK(use_everything());
    if (pipe(ends) != 0) return 1;
    set(0);
    printf("read: %d", (int)read(ends[0], &byte, 1));
    printf(", interrupted %d\n", errno == EINTR);
    set(SA_RESTART);
    printf("poll: %d", poll(NULL, 0, 5000));
    printf(", interrupted %d\n", errno == EINTR);
    set(SA_RESTART);
    printf("sleep: %s\n", sleep(5) > 0 ? "cut short" : "to its end");
    CHECK(use_everything());
    printf("alarms: %d\n", (int)alarms);
    return 0;
}
