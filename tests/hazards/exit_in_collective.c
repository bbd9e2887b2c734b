/* One rank leaves without entering the all-reduce that the other rank is in. Then the other leaves too: by
 * exit() with the all-reduce on its stream, by exit() in one thread while another waits for it, or by a
 * signal that ends it while it waits. Exit code 0. */
#include "gpu.h"
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 1 << 20 };
enum way { BY_EXIT, IN_ANOTHER_THREAD, BY_SIGNAL, ENDINGS };

static const char *names[] = {"exit", "exit in another thread", "signal"};
static void *stream, *buffer, *comm;

static void *leave(void *unused) {
    usleep(100 * 1000);
    exit(6);
    return unused;
}

static int first(enum way way, int to_second, int ready) {
    gpu_unique_id id;
    pthread_t thread;
    CHECK(cudaSetDevice(0));
    CHECK(ncclGetUniqueId(&id));
    if (write(to_second, &id, sizeof id) != sizeof id) return 1;
    CHECK(ncclCommInitRank(&comm, 2, id, 0));
    CHECK(cudaStreamCreateWithFlags(&stream, GPU_NON_BLOCKING));
    CHECK(cudaMalloc(&buffer, COUNT * 2));
    for (int i = 0; i < 4; i++)
        CHECK(ncclAllReduce(buffer, buffer, COUNT, GPU_NCCL_BF16, GPU_NCCL_SUM, comm, stream));
    if (write(ready, "r", 1) != 1) return 1;
    if (way == BY_EXIT) {
        usleep(100 * 1000);
        exit(5);
    }
    if (way == IN_ANOTHER_THREAD) pthread_create(&thread, NULL, leave, NULL);
    cudaStreamSynchronize(stream);
    return 1;
}

static int second(int from_first) {
    gpu_unique_id id;
    CHECK(cudaSetDevice(1));
    if (read(from_first, &id, sizeof id) != sizeof id) return 1;
    CHECK(ncclCommInitRank(&comm, 2, id, 1));
    CHECK(cudaStreamCreateWithFlags(&stream, GPU_NON_BLOCKING));
    CHECK(cudaMalloc(&buffer, COUNT * 2));
    for (int i = 0; i < 3; i++)
        CHECK(ncclAllReduce(buffer, buffer, COUNT, GPU_NCCL_BF16, GPU_NCCL_SUM, comm, stream));
    CHECK(cudaStreamSynchronize(stream));
    exit(9);
}

int main(void) {
    gpu_open();
    for (enum way way = BY_EXIT; way < ENDINGS; way++) {
        int id[2], ready[2], status[2];
        pid_t ranks[2];
        char word;
        if (pipe(id) != 0 || pipe(ready) != 0) return 1;
        fflush(stdout);
        if ((ranks[0] = fork()) == 0) exit(first(way, id[1], ready[1]));
        if ((ranks[1] = fork()) == 0) exit(second(id[0]));
        waitpid(ranks[1], &status[1], 0);
        if (read(ready[0], &word, 1) != 1) return 1;
        if (way == BY_SIGNAL) {
            usleep(100 * 1000);
            kill(ranks[0], SIGTERM);
        }
        waitpid(ranks[0], &status[0], 0);
        for (int rank = 0; rank < 2; rank++)
            printf("%s, rank %d: exited %d, code %d, signal %d\n", names[way], rank, WIFEXITED(status[rank]),
                   WIFEXITED(status[rank]) ? WEXITSTATUS(status[rank]) : 0, WTERMSIG(status[rank]));
    }
    return 0;
}
