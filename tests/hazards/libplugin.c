/* A plugin linked to one CUDA runtime, and to a library (libuser.c) linked to another; for opens.c. That
 * library is bound in the scope of the plugin's dependencies.
 *
 * INNER: the library's function. */
#include "standins/cuda.h"
#include <stdio.h>

int INNER(char *text, size_t bytes);

int user_run(char *text, size_t bytes) {
    int code = cudaSetDevice(0), used = snprintf(text, bytes, "runtime %d, answer %d; inside: ", standin_answers_from(), code);
    return INNER(text + used, bytes - used);
}
