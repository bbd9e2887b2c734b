/* A program starts another (a compiler, git, a shell) while it uses the GPU, and then replaces itself by
 * exec. Both inherit the environment. Exit code 5, from the program after exec. */
#include "gpu.h"
#include <sys/wait.h>
#include <unistd.h>

enum { N = 1024 };

int main(void) {
    gpu_open();
    void *blas, *m[3];
    CHECK(cudaSetDevice(0));
    CHECK(cublasCreate_v2(&blas));
    gpu_matrices(N, m);
    for (int i = 0; i < 100; i++) CHECK(gpu_gemm(blas, N, m[0], m[1], m[2]));

    /* By now the hook has opened all its descriptors. */
    usleep(150 * 1000);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        execl("/bin/sh", "sh", "-c", "echo the child is a shell with descriptors $(echo /proc/self/fd/*); exit 3", (char *)NULL);
        _exit(127);
    }
    int status = 0;
    waitpid(child, &status, 0);
    printf("child: exited %d, code %d\n", WIFEXITED(status), WEXITSTATUS(status));
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < 100; i++) CHECK(gpu_gemm(blas, N, m[0], m[1], m[2]));
    printf("system: %d\n", WEXITSTATUS(system("exit 4")));
    fflush(stdout);
    execl("/bin/sh", "sh", "-c", "echo the parent is a shell; exit 5", (char *)NULL);
    return 127;
}
