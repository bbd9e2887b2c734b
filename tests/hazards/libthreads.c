/* A preload that runs code of its own in each new thread, as profilers do: it makes CUDA calls there. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

int cudaDeviceSynchronize(void) __attribute__((weak));

struct start {
    void *(*body)(void *);
    void *argument;
};

static void *begin(void *given) {
    struct start start = *(struct start *)given;
    free(given);
    if (cudaDeviceSynchronize) cudaDeviceSynchronize();
    return start.body(start.argument);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *argument) {
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) =
        (int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))dlsym(RTLD_NEXT, "pthread_create");
    struct start *start = malloc(sizeof *start);
    *start = (struct start){body, argument};
    return real(thread, attributes, begin, start);
}
