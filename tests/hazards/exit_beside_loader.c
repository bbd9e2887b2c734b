/* _exit() before the first CUDA call, while another thread holds the loader's lock. Takes libsleeps.so. Exit
 * code 7. */
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <unistd.h>

static sem_t begun;

void loading_has_begun(void) { sem_post(&begun); }

static void *load(void *library) {
    if (!dlopen(library, RTLD_NOW)) _exit(99);
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t thread;
    if (argc != 2) return 64;
    sem_init(&begun, 0, 0);
    if (pthread_create(&thread, NULL, load, argv[1]) != 0) return 1;
    while (sem_wait(&begun) != 0) {}
    printf("in the loader\n");
    fflush(stdout);
    _exit(7);
}
