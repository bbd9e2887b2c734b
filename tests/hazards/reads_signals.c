/* All threads of the program block signals, and one reads them by signalfd, including the signals of faults.
 * Each signal sent to the process must arrive there. Exit code 0. */
#include "calls.h"
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

static const int numbers[] = {SIGTRAP, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGSYS, SIGUSR1, SIGUSR2, SIGTERM, SIGINT,
                              SIGHUP,  SIGPROF, SIGXCPU, SIGPIPE, SIGCHLD, SIGQUIT, SIGALRM, SIGWINCH, SIGIO};
enum { NUMBERS = sizeof numbers / sizeof numbers[0], ROUNDS = 12 };

/* The number of other threads that do not block all of these signals. */
static int takers(void) {
    unsigned long long wanted = 0;
    int count = 0;
    for (int i = 0; i < NUMBERS; i++) wanted |= 1ull << (numbers[i] - 1);
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; tasks && (task = readdir(tasks));) {
        char path[300], line[256];
        if (task->d_name[0] == '.' || atoi(task->d_name) == getpid()) continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", task->d_name);
        FILE *status = fopen(path, "r");
        while (status && fgets(line, sizeof line, status))
            if (strncmp(line, "SigBlk:", 7) == 0) count += (strtoull(line + 7, NULL, 16) & wanted) != wanted;
        if (status) fclose(status);
    }
    if (tasks) closedir(tasks);
    return count;
}

int main(void) {
    sigset_t all;
    setvbuf(stdout, NULL, _IOLBF, 0);
    sigemptyset(&all);
    for (int i = 0; i < NUMBERS; i++) sigaddset(&all, numbers[i]);
    /* Like some programs, blocks the signals only after the libraries' threads exist. */
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
        /* By then threads that start later exist too. */
        if (i == 0) {
            usleep(20 * 1000);
            printf("%d other threads take them\n", takers());
        }
    }
    return 0;
}
