/* A sandbox whose SIGSYS handler answers forbidden system calls, set up before the first call: new threads
 * inherit the filter. With `later`, it is set up after the first call, for all threads. Exit code 0. */
#define _GNU_SOURCE
#include "calls.h"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define TRAP(name) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP)

static void answer(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
#ifdef __x86_64__
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX] = -EPERM;
#else
    ((ucontext_t *)context)->uc_mcontext.regs[0] = -EPERM;
#endif
}

int main(int argc, char **argv) {
    static struct sock_filter trapped[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        TRAP(socket),
        TRAP(connect),
        TRAP(openat),
        TRAP(memfd_create),
        TRAP(statx),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof trapped / sizeof trapped[0], trapped};
    const struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_NODEFER};
    action.sa_sigaction = answer;
    if (argc == 2 && strcmp(argv[1], "later") == 0) CHECK(use_everything());
    sigaction(SIGSYS, &action, NULL);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return 77;
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0) return 77;
    for (int i = 0; i < 15; i++) {
        CHECK(use_everything());
        nanosleep(&pause, NULL);
    }
    printf("not ended\n");
    return 0;
}
