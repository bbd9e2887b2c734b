/* Two processes forked before any CUDA call, as by torchrun, reduce together: alone, in a group, by
 * ncclBcast, by send and receive, and in a split communicator. Exit code 0. */
#include "gpu.h"
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 2, ROUNDS = 50, COUNT = 1 << 20 };

static int rank_main(int rank, int from_first) {
    void *comm, *half, *stream, *buffer;
    gpu_unique_id id;
    CHECK(cudaSetDevice(rank));
    if (rank == 0) {
        CHECK(ncclGetUniqueId(&id));
        if (write(from_first, &id, sizeof id) != sizeof id) return 1;
    } else if (read(from_first, &id, sizeof id) != sizeof id) {
        return 1;
    }
    CHECK(ncclCommInitRank(&comm, RANKS, id, rank));
    CHECK(cudaStreamCreateWithFlags(&stream, GPU_NON_BLOCKING));
    CHECK(cudaMalloc(&buffer, COUNT * 2));
    for (int i = 0; i < ROUNDS; i++)
        CHECK(ncclAllReduce(buffer, buffer, COUNT, GPU_NCCL_BF16, GPU_NCCL_SUM, comm, stream));
    CHECK(cudaStreamSynchronize(stream));

    CHECK(ncclGroupStart());
    CHECK(ncclAllReduce(buffer, buffer, COUNT, GPU_NCCL_BF16, GPU_NCCL_SUM, comm, stream));
    CHECK(ncclAllReduce(buffer, buffer, COUNT, GPU_NCCL_BF16, GPU_NCCL_SUM, comm, stream));
    CHECK(ncclGroupEnd());
    CHECK(ncclBcast(buffer, COUNT, GPU_NCCL_BF16, 0, comm, stream));
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(ncclGroupStart());
        for (int k = 0; k < 3; k++) {
            CHECK(ncclSend(buffer, COUNT + k, GPU_NCCL_BF16, 1 - rank, comm, stream));
            CHECK(ncclRecv(buffer, COUNT + k, GPU_NCCL_BF16, 1 - rank, comm, stream));
            CHECK(ncclSend(buffer, COUNT, GPU_NCCL_BF16, rank, comm, stream));
            CHECK(ncclRecv(buffer, COUNT, GPU_NCCL_BF16, rank, comm, stream));
        }
        CHECK(ncclGroupEnd());
    }
    for (int i = 0; i < ROUNDS; i++) {
        if (rank == 0) CHECK(ncclSend(buffer, COUNT, GPU_NCCL_BF16, 1, comm, stream));
        if (rank == 1) CHECK(ncclRecv(buffer, COUNT, GPU_NCCL_BF16, 0, comm, stream));
    }
    CHECK(cudaStreamSynchronize(stream));

    /* Both ranks have the same color, in reverse order. Then one rank has no color. */
    int count = -1, new_rank = -1;
    CHECK(ncclCommSplit(comm, 3, -rank, &half, NULL));
    CHECK(ncclCommCount(half, &count));
    CHECK(ncclCommUserRank(half, &new_rank));
    CHECK(ncclAllReduce(buffer, buffer, COUNT, GPU_NCCL_BF16, GPU_NCCL_SUM, half, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(ncclCommDestroy(half));
    CHECK(ncclCommSplit(comm, rank == 0 ? 0 : -1, 0, &half, NULL));
    int expected = count == RANKS && new_rank == RANKS - 1 - rank && (half != NULL) == (rank == 0);
    if (half) CHECK(ncclCommDestroy(half));
    CHECK(ncclCommDestroy(comm));
    CHECK(cudaStreamDestroy(stream));
    return expected ? 0 : 2;
}

int main(void) {
    gpu_open();
    int id_pipe[2];
    if (pipe(id_pipe) != 0) return 1;
    pid_t ranks[RANKS];
    for (int rank = 0; rank < RANKS; rank++) {
        ranks[rank] = fork();
        if (ranks[rank] == 0) exit(rank_main(rank, id_pipe[rank == 0 ? 1 : 0]));
    }
    int failed = 0;
    for (int rank = 0; rank < RANKS; rank++) {
        int status = 0;
        waitpid(ranks[rank], &status, 0);
        printf("rank %d: exited %d, code %d\n", rank, WIFEXITED(status), WEXITSTATUS(status));
        failed |= status;
    }
    return failed ? 1 : 0;
}
