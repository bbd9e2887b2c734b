/* A sandbox whose SIGSYS handler answers forbidden system calls, set up before the first call: new threads
 * inherit the filter. Exit code 0. */
#define _GNU_SOURCE
#include "calls.h"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>

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

int main(void) {
    static struct sock_filter trapped[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        TRAP(socket),
        TRAP(connect),
        TRAP(openat),
        TRAP(memfd_create),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof trapped / sizeof trapped[0], trapped};
    const struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_NODEFER};
    action.sa_sigaction = answer;
    sigaction(SIGSYS, &action, NULL);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) return 77;
    for (int i = 0; i < 15; i++) {
        CHECK(use_everything());
        nanosleep(&pause, NULL);
    }
    printf("not ended\n");
    return 0;
}
