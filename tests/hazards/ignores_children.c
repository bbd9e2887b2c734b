/* The program ignores SIGCHLD, so children leave no status. Its own system() and waitpid() must behave
 * accordingly. Exit code 0. */
#include "calls.h"
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    signal(SIGCHLD, SIG_IGN);
    CHECK(use_everything());
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        CHECK(use_everything());
        _exit(4);
    }
    int waited = waitpid(-1, NULL, 0), why = errno;
    printf("waited: %d, no child: %d\n", waited, why == ECHILD);
    printf("system: %d\n", system("exit 3"));
    CHECK(use_everything());
    struct sigaction is;
    sigaction(SIGCHLD, NULL, &is);
    printf("still ignored: %d\n", is.sa_handler == SIG_IGN);
    return 0;
}
