/* NCCL makes communicators in its own thread. The program unmaps the variables for their handles as soon as
 * it may, and the hook must not read them later. Exit code 0. */
#include "gpu.h"
#include <sched.h>
#include <sys/mman.h>

enum { IN_PROGRESS = 7, COUNT = 1 << 16, ROUNDS = 50 };

static void *volatile *place(void) {
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) exit(GPU_CANNOT_BEGIN);
    return page;
}

static void *take(void *volatile *from) {
    void *handle;
    while (!(handle = *from)) sched_yield();
    munmap((void *)from, 4096);
    return handle;
}

static void wait_for(void *comm) {
    int state = IN_PROGRESS;
    while (state == IN_PROGRESS) {
        CHECK(ncclCommGetAsyncError(comm, &state));
        sched_yield();
    }
    CHECK(state);
}

static void expect(int answer, int code) {
    if (answer != code) {
        printf("%d instead of %d\n", answer, code);
        exit(1);
    }
}

int main(void) {
    gpu_open();
    gpu_config config = GPU_CONFIG(0, "here and gone");
    gpu_unique_id id;
    void *buffer;
    CHECK(cudaSetDevice(0));
    CHECK(cudaMalloc(&buffer, COUNT * 2));
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(ncclGetUniqueId(&id));
        void *volatile *at = place();
        int answer = ncclCommInitRankConfig((void **)at, 1, id, 0, &config);
        if (answer) expect(answer, IN_PROGRESS);
        void *comm = take(at);
        wait_for(comm);
        CHECK(ncclAllReduce(buffer, buffer, COUNT, GPU_NCCL_BF16, GPU_NCCL_SUM, comm, NULL));

        /* The handle is written before the program asks for the parent's state. Then the variable is
         * unmapped. */
        void *volatile *of_child = place();
        expect(ncclCommSplit(comm, 0, 0, (void **)of_child, NULL), IN_PROGRESS);
        void *child = take(of_child);
        wait_for(comm);
        wait_for(child);
        CHECK(ncclAllReduce(buffer, buffer, COUNT, GPU_NCCL_BF16, GPU_NCCL_SUM, child, NULL));

        /* One communicator is made in a group, and the program never asks for its state. */
        of_child = place();
        CHECK(ncclGroupStart());
        CHECK(ncclCommSplit(comm, 0, 0, (void **)of_child, NULL));
        expect(ncclGroupEnd(), IN_PROGRESS);
        void *second = take(of_child);
        wait_for(comm);
        CHECK(cudaDeviceSynchronize());
        CHECK(ncclCommDestroy(second));
        CHECK(ncclCommDestroy(child));
        CHECK(ncclCommDestroy(comm));

        /* The other rank of this communicator never joins. */
        at = place();
        CHECK(ncclGetUniqueId(&id));
        expect(ncclCommInitRankConfig((void **)at, 2, id, 0, &config), IN_PROGRESS);
        void *alone = take(at);
        CHECK(ncclCommAbort(alone));
    }
    printf("%d rounds\n", ROUNDS);
    return 0;
}
