/* A plugin linked to one CUDA runtime, and to a library (libuser.c) linked to another; for opens.c. The
 * dependencies of the plugin are also the scope of that library.
 *
 * INNER: the library's function. */
#include "standins/cuda.h"
#include <stdio.h>

int INNER(char *text, size_t bytes);

int user_run(char *text, size_t bytes) {
    int code = cudaSetDevice(0), used = snprintf(text, bytes, "runtime %d, answer %d; inside: ", standin_answers_from(), code);
    return INNER(text + used, bytes - used);
}
