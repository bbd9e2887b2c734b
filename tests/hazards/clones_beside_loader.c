/* Children made by the bare system call, which runs no fork handlers of the C library, while another thread
 * opens and closes libraries. Each child only calls _exit. Then the same by vfork. Takes a library. Exit code
 * 0. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CHILDREN = 100 };

static volatile int is_over;

static void *open_and_close(void *library) {
    while (!is_over) {
        void *handle = dlopen(library, RTLD_NOW);
        if (handle) dlclose(handle);
    }
    return NULL;
}

static long long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000LL + time.tv_nsec / 1000000;
}

/* The child's exit code, or -1 if it did not end by itself. */
static int code_of(pid_t child) {
    int status = 0;
    for (long long until = now() + 2000; now() < until; usleep(1000))
        if (waitpid(child, &status, WNOHANG) == child) return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return -1;
}

int main(int argc, char **argv) {
    pthread_t thread;
    int ended = 0, by_vfork = 0, hung = 0;
    if (argc != 2) return 64;
    if (pthread_create(&thread, NULL, open_and_close, argv[1]) != 0) return 1;
    for (int i = 0; i < CHILDREN && hung < 3; i++) {
        pid_t child = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
        if (child == 0) _exit(3);
        int code = code_of(child);
        ended += code == 3;
        hung += code != 3;
    }
    for (int i = 0; i < CHILDREN; i++) {
        pid_t child = vfork();
        if (child == 0) _exit(4);
        by_vfork += code_of(child) == 4;
    }
    is_over = 1;
    pthread_join(thread, NULL);
    printf("%d of %d children ended, %d by vfork\n", ended, CHILDREN, by_vfork);
    return 0;
}
