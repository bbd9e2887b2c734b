/* A handler of SIGSEGV on an alternate stack of 6,464 bytes: half of it is for the frame of AVX-512, and what is left sufficed for the handler.
 * It mends, jumps out, and in the end gives up. Ends by SIGSEGV. */
#include "calls.h"
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { STACK = 6464, PAGE = 4096 };

static char *page;
static sigjmp_buf back;
static volatile sig_atomic_t gives_up;

static void on_fault(int signal, siginfo_t *info, void *context) {
    (void)context;
    char said[] = "mended or jumped out\n";
    if (write(1, said, sizeof said - 1) < 0) _exit(99);
    if ((char *)info->si_addr == page) {
        mprotect(page, PAGE, PROT_READ | PROT_WRITE);
        return;
    }
    if (!gives_up) siglongjmp(back, 1);
    struct sigaction action = {.sa_handler = SIG_DFL};
    sigaction(signal, &action, NULL);
}

int main(void) {
    /* At the end of its mapping, below which there is nothing: what overflows it faults again. */
    char *room = mmap(NULL, 4 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(room + 2 * PAGE, 2 * PAGE, PROT_READ | PROT_WRITE);
    page = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t stack = {.ss_sp = room + 2 * PAGE, .ss_size = STACK};
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    if (sigaltstack(&stack, NULL) != 0) return 77;
    sigaction(SIGSEGV, &action, NULL);
    CHECK(use_everything());
    for (int i = 0; i < 3; i++) {
        mprotect(page, PAGE, PROT_NONE);
        *(volatile char *)page = 1;
        if (sigsetjmp(back, 1) == 0) *(volatile int *)(uintptr_t)8 = 1;
        CHECK(use_everything());
    }
    gives_up = 1;
    *(volatile int *)(uintptr_t)8 = 1;
    return 0;
}
