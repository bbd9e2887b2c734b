/* All ways to end: quick_exit with its handlers, _Exit, the bare system call, exit(), SIGKILL from itself,
 * exec, and the end of main in a forked child. Each is in its own child, after CUDA was used. Exit code 0. */
#define _GNU_SOURCE
#include "calls.h"
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void say(const char *text) {
    if (write(1, text, strlen(text)) < 0) _exit(99);
}

static void at_exit(void) { say("at exit\n"); }
static void at_quick_exit_(void) { say("at quick exit\n"); }

static int end(int how) {
    CHECK(use_everything());
    if (how == 0) quick_exit(20);
    if (how == 1) _Exit(21);
    if (how == 2) syscall(SYS_exit_group, 22);
    if (how == 3) exit(23);
    if (how == 4) raise(SIGKILL);
    if (how == 5) execl("/bin/sh", "sh", "-c", "exit 24", NULL);
    return 25;
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    atexit(at_exit);
    at_quick_exit(at_quick_exit_);
    for (int how = 0; how < 7; how++) {
        int status = 0;
        pid_t child = fork();
        if (child == 0) return end(how);
        waitpid(child, &status, 0);
        printf("%d: exited %d, code %d, signal %d\n", how, WIFEXITED(status), WEXITSTATUS(status),
               WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    }
    CHECK(use_everything());
    _exit(0);
}
