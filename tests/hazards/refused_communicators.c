/* NCCL refuses to make communicators, in every call that makes them; other communicators succeed in between.
 * The program gets the same error codes and the same written handles as without the hook. Exit code 0. */
#include "gpu.h"

enum { RANKS = 2, COUNT = 1 << 16, ABORT = 1 };

static void show(const char *what, int code) { printf("%s: %d\n", what, code); }

int main(void) {
    gpu_open();
    void *comms[RANKS] = {NULL, NULL}, *none = NULL, *left = NULL, *buffer;
    gpu_config broken = GPU_CONFIG(1, "not a configuration");
    gpu_unique_id id;
    broken.magic = 0;
    CHECK(cudaSetDevice(0));
    CHECK(cudaMalloc(&buffer, COUNT * 2));
    CHECK(ncclGetUniqueId(&id));
    show("no place", ncclCommInitRank(NULL, 1, id, 0));
    show("a rank too many", ncclCommInitRank(&none, 2, id, 2));
    show("a negative rank", ncclCommInitRank(&none, 2, id, -1));
    show("a broken configuration", ncclCommInitRankConfig(&none, 1, id, 0, &broken));
    show("fewer than none", ncclCommInitAll(&none, -1, NULL));
    show("all in nowhere", ncclCommInitAll(NULL, RANKS, NULL));
    CHECK(ncclCommInitAll(comms, RANKS, NULL));

    int own[] = {0}, other[] = {1}, far[] = {9, 1};
    show("a split without parent", ncclCommSplit(NULL, 0, 0, &none, NULL));
    show("a split of no such color", ncclCommSplit(comms[0], -7, 0, &none, NULL));
    show("a split into nowhere", ncclCommSplit(comms[0], 0, 0, NULL, NULL));
    show("a shrink without parent", ncclCommShrink(NULL, other, 1, &none, NULL, 0));
    show("a shrink of nobody", ncclCommShrink(comms[0], other, 0, &none, NULL, 0));
    show("a shrink of whom", ncclCommShrink(comms[0], NULL, 1, &none, NULL, 0));
    show("a shrink of itself", ncclCommShrink(comms[0], own, 1, &none, NULL, 0));
    show("a shrink of strangers", ncclCommShrink(comms[0], far, 2, &none, NULL, 0));
    show("and its list is sorted, if at all", far[0] < far[1] || far[0] == 9);
    show("a negative shrink", ncclCommShrink(comms[0], other, -1, &none, NULL, 0));
    show("a grown one that is smaller", ncclCommGrow(comms[0], 1, NULL, -1, &none, NULL));
    show("a grown one without parent and id", ncclCommGrow(NULL, 4, NULL, 2, &none, NULL));
    CHECK(ncclCommShrink(comms[0], other, 1, &left, NULL, ABORT));
    CHECK(ncclAllReduce(buffer, buffer, COUNT, GPU_NCCL_BF16, GPU_NCCL_SUM, left, NULL));
    CHECK(cudaDeviceSynchronize());
    int state = -1;
    CHECK(ncclCommGetAsyncError(left, &state));
    show("what is left", state);
    show("after nobody", ncclCommGetAsyncError(NULL, &state));
    show("into nowhere", ncclCommGetAsyncError(left, NULL));
    show("an end of nobody", ncclCommFinalize(NULL));
    CHECK(ncclCommFinalize(left));
    CHECK(ncclCommDestroy(left));
    for (int i = 0; i < RANKS; i++) CHECK(ncclCommAbort(comms[i]));
    show("nothing was made besides", none != NULL);
    return 0;
}
