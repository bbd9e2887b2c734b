/* A new thread gets no core for 1.5 seconds, as on a busy machine: here it computes before it begins. All calls
 * must be observed, from the first one on, which creates the communicator. Exit code 0. */
#define _GNU_SOURCE
#include "calls.h"
#include <dlfcn.h>
#include <pthread.h>
#include <time.h>

typedef void *(*body_t)(void *);
struct late {
    body_t body;
    void *argument;
};

static double seconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void *begin(void *given) {
    struct late late = *(struct late *)given;
    free(given);
    double until = seconds() + 1.5;
    while (seconds() < until) {
    }
    return late.body(late.argument);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, body_t body, void *argument) {
    int (*create)(pthread_t *, const pthread_attr_t *, body_t, void *);
    *(void **)&create = dlsym(RTLD_NEXT, "pthread_create");
    struct late *late = malloc(sizeof *late);
    late->body = body;
    late->argument = argument;
    return create(thread, attributes, begin, late);
}

int main(void) {
    void *communicator, *memory;
    unique_id_t id;
    CHECK(ncclGetUniqueId(&id));
    CHECK(ncclCommInitRank(&communicator, 1, id, 0));
    CHECK(cudaMalloc(&memory, 1 << 20));
    for (int i = 0; i < 30; i++) CHECK(ncclAllReduce(memory, memory, 32, 9, 0, communicator, NULL));
    CHECK(cudaDeviceSynchronize());
    CHECK(ncclCommDestroy(communicator));
    CHECK(cudaFree(memory));
    return 0;
}
