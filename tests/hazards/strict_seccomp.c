/* A sandbox allows only the few system calls that the program itself makes. The program's end may make no
 * other call. Exit code 3. */
#include "calls.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ALLOW(name) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

int main(int argc, char **argv) {
    (void)argv;
    static struct sock_filter allowed[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(read),
        ALLOW(write),
        ALLOW(exit_group),
        ALLOW(exit),
        ALLOW(rt_sigreturn),
        ALLOW(futex),
        ALLOW(munmap),
        ALLOW(brk),
        ALLOW(mmap),
        ALLOW(newfstatat),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    const struct sock_fprog program = {sizeof allowed / sizeof allowed[0], allowed};
    CHECK(use_everything());
    printf("about to be strict\n");
    fflush(stdout);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) return 77;
    CHECK(use_everything());
    printf("strict\n");
    fflush(stdout);
    if (argc > 1) _exit(3);
    return 3;
}
