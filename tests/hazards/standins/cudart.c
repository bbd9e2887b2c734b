/* A CUDA runtime in C with frame tables: exceptions, cancellations and jumps of the program pass through it,
 * and it can be unloaded.
 *
 * cc -shared -fPIC -fexceptions -DCOPY=13 -Wl,-soname,libcudart.so.13 cudart.c -o libcudart.so.13
 *
 * COPY: its number, which its handles carry. PRINTS: it prints when it is loaded and unloaded. */
#define _GNU_SOURCE
#include "cuda.h"
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_PENDING = 16, INVALID_VALUE = 1 };

struct pending {
    host_function function;
    void *argument;
};

/* A stream, an event or a kernel. */
struct handle {
    int copy, never_ends, waiting;
    struct pending pending[MOST_PENDING];
};

static struct handle default_stream = {.copy = COPY}, kernel = {.copy = COPY};
static __thread int last_error;

#ifdef PRINTS
#define NUMBER(n) #n
#define SAY(copy, what) "cudart " NUMBER(copy) " " what "\n"
static void say(const char *text) {
    if (write(1, text, strlen(text)) < 0) _exit(99);
}
__attribute__((constructor)) static void loaded(void) { say(SAY(COPY, "loaded")); }
__attribute__((destructor)) static void unloaded(void) { say(SAY(COPY, "unloaded")); }
#endif

static int answer(int code) {
    if (code != 0 && code != CUDA_NOT_READY) last_error = code;
    return code;
}

static int own(const void *handle) {
    if (!handle) return INVALID_VALUE;
    return ((const struct handle *)handle)->copy == COPY ? CUDA_OK : CUDA_NOT_MINE;
}

/* NULL and CUDA's two numbers for default streams mean the default stream. */
static struct handle *stream_of(void *stream) { return (size_t)stream <= 2 ? &default_stream : stream; }

static int make(void **place, unsigned flags) {
    struct handle *made = calloc(1, sizeof *made);
    if (!made) return answer(2);
    made->copy = COPY;
    made->never_ends = (flags & STREAM_NEVER_ENDS) != 0;
    *place = made;
    return 0;
}

static int unmake(void *handle) {
    int code = own(handle);
    if (code == 0) free(handle);
    return answer(code);
}

int cudaSetDevice(int device) { return answer(device == 0 ? 0 : 101); }
int cudaGetDevice(int *device) { return *device = 0; }
int cudaGetDeviceCount(int *count) { return (*count = 1) - 1; }
int cudaMalloc(void **place, size_t bytes) { return answer((*place = malloc(bytes)) ? 0 : 2); }
int cudaFree(void *memory) { return free(memory), 0; }
int cudaMemset(void *memory, int value, size_t bytes) { return memset(memory, value, bytes), 0; }
int cudaRuntimeGetVersion(int *version) { return (*version = COPY * 1000) - COPY * 1000; }
int cudaPeekAtLastError(void) { return last_error; }
const char *cudaGetErrorName(int code) { return code ? "cudaErrorStandIn" : "cudaSuccess"; }
const void *standin_kernel(void) { return &kernel; }
int standin_answers_from(void) { return COPY; }

int cudaGetLastError(void) {
    int code = last_error;
    last_error = 0;
    return code;
}

int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream) {
    (void)kind;
    memcpy(to, from, bytes);
    return answer(own(stream_of(stream)));
}

int cudaStreamCreateWithFlags(void **place, unsigned flags) { return make(place, flags); }
int cudaStreamDestroy(void *stream) { return unmake(stream); }

int cudaStreamQuery(void *stream) {
    int code = own(stream_of(stream));
    return answer(code == 0 && stream_of(stream)->never_ends ? CUDA_NOT_READY : code);
}

int cudaStreamIsCapturing(void *stream, int *is) {
    *is = 0;
    return answer(own(stream_of(stream)));
}

/* A separate function: the library calls none of its own names that a preload may interpose. */
static int wait_for(struct handle *waited) {
    int code = own(waited);
    if (code != 0) return answer(code);
    while (waited->waiting > 0) {
        struct pending first = waited->pending[0];
        memmove(waited->pending, waited->pending + 1, --waited->waiting * sizeof first);
        first.function(first.argument);
    }
    while (waited->never_ends) poll(NULL, 0, -1);
    return 0;
}

int cudaStreamSynchronize(void *stream) { return wait_for(stream_of(stream)); }
int cudaDeviceSynchronize(void) { return wait_for(&default_stream); }

int cudaLaunchHostFunc(void *stream, host_function function, void *argument) {
    struct handle *on = stream_of(stream);
    int code = own(on);
    if (code == 0 && on->waiting == MOST_PENDING) code = INVALID_VALUE;
    if (code == 0) on->pending[on->waiting++] = (struct pending){function, argument};
    return answer(code);
}

int cudaLaunchKernel(const void *launched, dim3_t grid, dim3_t block, void **arguments, size_t shared, void *stream) {
    (void)grid, (void)block, (void)shared;
    int code = own(launched);
    if (code == 0) code = own(stream_of(stream));
    if (code == 0 && arguments && arguments[0]) ((host_function)arguments[0])(arguments[1]);
    return answer(code);
}

int cudaEventCreateWithFlags(void **place, unsigned flags) {
    (void)flags;
    return make(place, 0);
}

int cudaEventRecord(void *event, void *stream) {
    int code = own(event);
    return answer(code ? code : own(stream_of(stream)));
}

int cudaEventElapsedTime(float *milliseconds, void *from, void *to) {
    *milliseconds = 0.01f;
    int code = own(from);
    return answer(code ? code : own(to));
}

int cudaEventQuery(void *event) { return answer(own(event)); }
int cudaEventSynchronize(void *event) { return answer(own(event)); }
int cudaEventDestroy(void *event) { return unmake(event); }

int cudaStreamWaitEvent(void *stream, void *event, unsigned flags) {
    (void)flags;
    int code = own(event);
    return answer(code ? code : own(stream_of(stream)));
}
