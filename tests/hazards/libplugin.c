/* A plugin that is linked to a CUDA runtime, and to a library (libuser.c) that is linked to another one: for opens.c. What it is opened with
 * is the scope of that library too.
 *
 * INNER: the library's function. */
#include "standins/cuda.h"
#include <stdio.h>

int INNER(char *text, size_t bytes);

int user_run(char *text, size_t bytes) {
    int code = cudaSetDevice(0), used = snprintf(text, bytes, "runtime %d, answer %d; inside: ", standin_answers_from(), code);
    return INNER(text + used, bytes - used);
}
