/* A handler of SIGSEGV on an alternate stack that is just large enough for it: 2,832 bytes beyond the
 * kernel's frame, or 6,464 bytes in all with AVX-512. The handler repairs faults, jumps out, and at last
 * gives up. Ends by SIGSEGV. */
#include "calls.h"
#include "figures.h"
#include "painted.h"
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BEYOND_FRAME = 2832, PAGES = 4, PAGE = 4096 };

#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif

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
    size_t bytes = (getauxval(AT_MINSIGSTKSZ) ? getauxval(AT_MINSIGSTKSZ) : 2048) + BEYOND_FRAME;
    /* The page below the stack is inaccessible, so an overflow faults again. */
    unsigned char *stack_bytes = painted_stack(PAGES * PAGE);
    page = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t stack = {.ss_sp = stack_bytes, .ss_size = bytes};
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    if (!stack_bytes || bytes > PAGES * PAGE || sigaltstack(&stack, NULL) != 0) return 77;
    sigaction(SIGSEGV, &action, NULL);
    /* Binds the functions of the handler beforehand: binding saves all registers, which on some processors
     * takes more than the stack has. */
    if (write(1, "", 0) < 0) return 77;
    if (sigsetjmp(back, 1) == 0) siglongjmp(back, 1);
    CHECK(use_everything());
    for (int i = 0; i < 3; i++) {
        mprotect(page, PAGE, PROT_NONE);
        *(volatile char *)page = 1;
        if (sigsetjmp(back, 1) == 0) *(volatile int *)(uintptr_t)8 = 1;
        CHECK(use_everything());
    }
    figure("alternate stack", used_of(stack_bytes, bytes));
    gives_up = 1;
    *(volatile int *)(uintptr_t)8 = 1;
    return 0;
}
