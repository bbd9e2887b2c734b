/* Runs this program again for each signal that programs usually handle, and prints how each run ended. */
#ifndef EACH_SIGNAL_H
#define EACH_SIGNAL_H

#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

extern char **environ;

static const struct {
    const char *name;
    int number;
} each_signal[] = {{"TERM", SIGTERM}, {"INT", SIGINT}, {"HUP", SIGHUP}, {"USR1", SIGUSR1},
                   {"USR2", SIGUSR2}, {"SEGV", SIGSEGV}, {"ABRT", SIGABRT}, {"FPE", SIGFPE}};

static int with_each_signal(char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; i < sizeof each_signal / sizeof each_signal[0]; i++) {
        char number[12];
        char *again[] = {argv[0], number, NULL};
        pid_t child;
        int status = 0;
        snprintf(number, sizeof number, "%d", each_signal[i].number);
        if (posix_spawn(&child, "/proc/self/exe", NULL, NULL, again, environ) != 0) return 99;
        waitpid(child, &status, 0);
        printf("%s: exited %d, code %d, signal %d\n", each_signal[i].name, WIFEXITED(status), WEXITSTATUS(status),
               WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    }
    return 0;
}

#endif
