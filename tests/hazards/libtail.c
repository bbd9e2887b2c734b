/* Functions whose last instruction jumps to the CUDA runtime; for tail_calls.c. Compiled with -O2. The event
 * is recorded by a normal call. */
#include "standins/cuda.h"

int tail_creates(void **place) { return cudaEventCreateWithFlags(place, 0); }

int tail_records(void *event) {
    int code = cudaEventRecord(event, NULL);
    return code == CUDA_OK ? standin_answers_from() : -code;
}

int tail_destroys(void *event) { return cudaEventDestroy(event); }
