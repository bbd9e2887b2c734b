/* As exit_beside_loader.c, after CUDA was used: CUDA calls while another thread holds the loader's lock, then
 * an end by each function that ends a process. Takes libsleeps.so. Exit code 0. */
#include "calls.h"
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/wait.h>
#include <unistd.h>

static sem_t begun;

void loading_has_begun(void) { sem_post(&begun); }

static void *load(void *library) {
    if (!dlopen(library, RTLD_NOW)) _exit(99);
    return NULL;
}

static void end(int how, char *library) {
    pthread_t thread;
    sem_init(&begun, 0, 0);
    CHECK(use_everything());
    if (pthread_create(&thread, NULL, load, library) != 0) _exit(1);
    while (sem_wait(&begun) != 0) {}
    CHECK(use_everything());
    if (how == 0) _exit(10);
    if (how == 1) _Exit(11);
    if (how == 2) quick_exit(12);
    abort();
}

int main(int argc, char **argv) {
    if (argc != 2) return 64;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int how = 0; how < 4; how++) {
        int status = 0;
        pid_t child = fork();
        if (child == 0) end(how, argv[1]);
        waitpid(child, &status, 0);
        printf("exited %d, code %d, signal %d\n", WIFEXITED(status), WEXITSTATUS(status), WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    }
    return 0;
}
