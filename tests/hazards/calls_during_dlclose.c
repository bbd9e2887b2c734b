/* A signal handler interrupts `dlclose` when a library is unmapped but still in the loader's list, and makes the
 * first call of a function there. A filter on `munmap` makes this certain. Exit code 0. */
#define _GNU_SOURCE
#include "calls.h"
#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

/* The filter allows calls with this third argument. */
#define OWN 0x600d

static volatile int failed, calls, is_closing;

#ifdef __x86_64__
static void unmap(int number, siginfo_t *info, void *given) {
    greg_t *registers = ((ucontext_t *)given)->uc_mcontext.gregs;
    (void)number, (void)info;
    registers[REG_RAX] = syscall(SYS_munmap, registers[REG_RDI], registers[REG_RSI], OWN);
    if (!is_closing) return;
    failed |= cudaDeviceSynchronize();
    calls++;
}
#endif

int main(void) {
#ifdef __x86_64__
    static struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_munmap, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OWN, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_NODEFER};
    void *library = dlopen("libm.so.6", RTLD_NOW);
    action.sa_sigaction = unmap;
    sigaction(SIGSYS, &action, NULL);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) return 77;
    CHECK(launch());
    is_closing = 1;
    if (library) dlclose(library);
    is_closing = 0;
    printf("calls: %d, failed: %d\n", calls > 0, failed);
#endif
    return 0;
}
