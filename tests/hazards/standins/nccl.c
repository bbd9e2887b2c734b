/* The part of NCCL that the programs of hazards/ need, with one rank. COPY: its number. */
#include "cuda.h"
#include <stdlib.h>
#include <string.h>

struct communicator {
    int copy, ranks, rank;
};

static int own(const void *communicator) {
    return communicator && ((const struct communicator *)communicator)->copy == COPY ? CUDA_OK : CUDA_NOT_MINE;
}

int ncclGetVersion(int *version) { return (*version = 22800) - 22800; }
int ncclGetUniqueId(unique_id_t *id) { return memset(id, COPY, sizeof *id), 0; }

int ncclCommInitRank(void **place, int ranks, unique_id_t id, int rank) {
    (void)id;
    struct communicator *made = calloc(1, sizeof *made);
    if (!made || ranks != 1 || rank != 0) return free(made), 4;
    *made = (struct communicator){COPY, ranks, rank};
    *place = made;
    return 0;
}

int ncclCommDestroy(void *communicator) {
    int code = own(communicator);
    if (code == 0) free(communicator);
    return code;
}

int ncclCommCount(const void *communicator, int *count) { return *count = 1, own(communicator); }
int ncclCommUserRank(const void *communicator, int *rank) { return *rank = 0, own(communicator); }
int ncclGroupStart(void) { return 0; }
int ncclGroupEnd(void) { return 0; }

int ncclAllReduce(const void *from, void *to, size_t count, int type, int operation, void *communicator, void *stream) {
    (void)from, (void)to, (void)count, (void)type, (void)operation, (void)stream;
    return own(communicator);
}
