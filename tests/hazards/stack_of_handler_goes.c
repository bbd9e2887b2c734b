/* A handler of a fault jumps out of its alternate stack, which is then unmapped. The program exits from a
 * fibre whose stack lies below the unmapped one. Exit code 4. */
#define _GNU_SOURCE
#include "calls.h"
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

enum { STACK = 64 << 10 };

static sigjmp_buf before;
static ucontext_t program, fibre;

static void jump_out(int number) {
    (void)number;
    siglongjmp(before, 1);
}

static void leave(void) { _exit(4); }

int main(void) {
    CHECK(use_everything());
    char *both = mmap(NULL, 2 * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t alternate = {.ss_sp = both + STACK, .ss_size = STACK};
    sigaltstack(&alternate, NULL);
    struct sigaction action = {.sa_handler = jump_out, .sa_flags = SA_ONSTACK};
    sigaction(SIGSEGV, &action, NULL);
    if (!sigsetjmp(before, 1)) *(volatile int *)NULL = 1;
    alternate.ss_flags = SS_DISABLE;
    sigaltstack(&alternate, NULL);
    munmap(both + STACK, STACK);
    sigaction(SIGSEGV, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
    getcontext(&fibre);
    fibre.uc_stack.ss_sp = both;
    fibre.uc_stack.ss_size = STACK;
    fibre.uc_link = &program;
    makecontext(&fibre, leave, 0);
    swapcontext(&program, &fibre);
    return 9;
}
