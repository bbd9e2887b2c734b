/* A callback of a launch forks. Parent and child both return from the launch and continue. Exit code 0. */
#include "calls.h"
#include <sys/wait.h>
#include <unistd.h>

static pid_t child = -1;

static void fork_here(void *unused) {
    (void)unused;
    child = fork();
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    for (int i = 0; i < 3; i++) {
        CHECK(launch_with(fork_here, NULL));
        CHECK(use_everything());
        if (child == 0) exit(i);
        int status = 0;
        waitpid(child, &status, 0);
        printf("child: exited %d, code %d, signal %d\n", WIFEXITED(status), WEXITSTATUS(status), WTERMSIG(status));
    }
    return 0;
}
