/* The part of cuBLAS that the programs of hazards/ need: handles that belong to one copy. COPY: its number.
 */
#include "cuda.h"
#include <stdlib.h>

struct handle {
    int copy;
    void *stream;
};

static int own(const struct handle *handle) { return handle && handle->copy == COPY ? CUDA_OK : CUDA_NOT_MINE; }

int cublasCreate_v2(void **place) {
    struct handle *made = calloc(1, sizeof *made);
    if (!made) return 3;
    made->copy = COPY;
    *place = made;
    return 0;
}

int cublasDestroy_v2(void *handle) {
    int code = own(handle);
    if (code == 0) free(handle);
    return code;
}

int cublasSetStream_v2(void *handle, void *stream) {
    int code = own(handle);
    if (code == 0) ((struct handle *)handle)->stream = stream;
    return code;
}

int cublasGetStream_v2(void *handle, void **stream) {
    int code = own(handle);
    if (code == 0) *stream = ((struct handle *)handle)->stream;
    return code;
}

int cublasGemmEx(void *handle, int transpose_a, int transpose_b, int m, int n, int k, const void *alpha, const void *a,
                 int a_type, int a_rows, const void *b, int b_type, int b_rows, const void *beta, void *c, int c_type,
                 int c_rows, int compute, int algorithm) {
    (void)transpose_a, (void)transpose_b, (void)alpha, (void)a, (void)a_type, (void)a_rows, (void)b, (void)b_type;
    (void)b_rows, (void)beta, (void)c, (void)c_type, (void)c_rows, (void)compute, (void)algorithm;
    int code = own(handle);
    return code ? code : m > 0 && n > 0 && k > 0 ? 0 : 7;
}
