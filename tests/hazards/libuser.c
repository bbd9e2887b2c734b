/* A library that uses the CUDA runtime that it is linked against, as torch and CuPy do; for opens.c and
 * two_runtimes.c.
 *
 * RUN: the name of its function. BY_POINTER: it gets each function from dlsym, as libraries do for which CUDA
 * is optional. BY_HANDLE: it calls dlsym with the runtime's handle. IN_CONSTRUCTOR, IN_THREAD, IN_DESTRUCTOR:
 * it also makes calls there, as its first or last ones. */
#define _GNU_SOURCE
#include "standins/cuda.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#if defined(BY_HANDLE)
#define OWN(name) ((__typeof__(&name))by_handle(#name))
/* Looks up a function in the runtime that this library's own references are bound to. */
static void *by_handle(const char *name) {
    Dl_info info;
    dladdr((void *)&standin_answers_from, &info);
    void *handle = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD), *found = handle ? dlsym(handle, name) : NULL;
    if (handle) dlclose(handle);
    return found;
}
#elif defined(BY_POINTER)
#define OWN(name) ((__typeof__(&name))dlsym(RTLD_DEFAULT, #name))
#else
#define OWN(name) name
#endif

/* 0, or a hundred times the number of the failed call plus its error code. */
static int use(void) {
    const dim3_t one = {1, 1, 1};
    void *stream, *event, *memory;
    int code;
    if ((code = OWN(cudaSetDevice)(0))) return 100 + code;
    if ((code = OWN(cudaMalloc)(&memory, 64))) return 200 + code;
    if ((code = OWN(cudaStreamCreateWithFlags)(&stream, 1))) return 300 + code;
    if ((code = OWN(cudaEventCreateWithFlags)(&event, 0))) return 400 + code;
    if ((code = OWN(cudaLaunchKernel)(OWN(standin_kernel)(), one, one, NULL, 0, stream))) return 500 + code;
    if ((code = OWN(cudaMemcpyAsync)(memory, memory, 0, 3, stream))) return 600 + code;
    if ((code = OWN(cudaEventRecord)(event, stream))) return 700 + code;
    if ((code = OWN(cudaStreamWaitEvent)(stream, event, 0))) return 800 + code;
    if ((code = OWN(cudaStreamSynchronize)(stream))) return 900 + code;
    if ((code = OWN(cudaEventSynchronize)(event))) return 1000 + code;
    if ((code = OWN(cudaEventDestroy)(event))) return 1100 + code;
    if ((code = OWN(cudaStreamDestroy)(stream))) return 1200 + code;
    if ((code = OWN(cudaFree)(memory))) return 1300 + code;
    if ((code = OWN(cudaDeviceSynchronize)())) return 1400 + code;
    return 0;
}

/* Writes the number of the runtime, and the result. */
int RUN(char *text, size_t bytes) { return snprintf(text, bytes, "runtime %d, answer %d", OWN(standin_answers_from)(), use()); }

#if defined(IN_CONSTRUCTOR) || defined(IN_DESTRUCTOR)
static void say(const char *what) {
    char text[64];
    snprintf(text, sizeof text, "%s: %d\n", what, use());
    if (write(1, text, strlen(text)) < 0) _exit(99);
}
#endif

#ifdef IN_CONSTRUCTOR
#ifdef IN_THREAD
static void *run(void *unused) {
    say("in a thread of the constructor's");
    return unused;
}
#endif

__attribute__((constructor)) static void constructed(void) {
#ifdef IN_THREAD
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, NULL) == 0) pthread_join(thread, NULL);
#else
    say("in the constructor");
#endif
}
#endif

#ifdef IN_DESTRUCTOR
__attribute__((destructor)) static void destroyed(void) { say("in the destructor"); }
#endif
