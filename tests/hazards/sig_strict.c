/* Only the system calls that a program needs to repair a fault and to end are allowed. The argument says how
 * it ends. Any other system call kills the process. Exit code 5. */
#define _GNU_SOURCE
#include "gpu.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define ALLOW(number)                                                                                           \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static char *page;

static void on_fault(int signal) {
    (void)signal;
    mprotect(page, 4096, PROT_READ | PROT_WRITE);
}

static void be_strict(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(SYS_exit_group),
        ALLOW(SYS_write),
        ALLOW(SYS_mprotect),
        ALLOW(SYS_rt_sigreturn),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) _exit(GPU_CANNOT_BEGIN);
}

static void end(void) {
    be_strict();
    for (int i = 0; i < 10; i++) {
        mprotect(page, 4096, PROT_NONE);
        *(volatile char *)page = 1;
    }
    _exit(5);
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    gpu_open();
    page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *memory;
    CHECK(cudaSetDevice(0));
    CHECK(cudaMalloc(&memory, 1 << 20));
    CHECK(gpu_kernel(NULL));
    signal(SIGSEGV, on_fault);
    if (strcmp(how, "alone") == 0) end();
    pid_t pid = strcmp(how, "fork") == 0    ? fork()
                : strcmp(how, "vfork") == 0 ? vfork()
                                            : (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) end();
    int status = 0;
    waitpid(pid, &status, 0);
    printf("%s: exit %d, signal %d\n", how, WIFEXITED(status) ? WEXITSTATUS(status) : -1,
           WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    return 5;
}
