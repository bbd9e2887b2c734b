/* A handler repairs faults on an alternate stack that is hardly larger than the kernel's frame. Exit code 0.
 */
#define _GNU_SOURCE
#include "gpu.h"
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

/* Bytes that the handler itself needs. */
enum { SPARE = 192, WHOLE = 64 << 10 };

static char *page, *stack_top;
static volatile sig_atomic_t mended;
static volatile size_t depth;

static void on_fault(int signal) {
    char here;
    (void)signal;
    mended++;
    depth = (size_t)(stack_top - &here);
    mprotect(page, 4096, PROT_READ | PROT_WRITE);
}

static void stack_of(char *from, size_t length) {
    stack_t stack = {.ss_sp = from, .ss_size = length};
    stack_top = from + length;
    if (sigaltstack(&stack, NULL) != 0) exit(1);
}

static void faults(int count) {
    for (int i = 0; i < count; i++) {
        mprotect(page, 4096, PROT_NONE);
        *(volatile char *)page = 1;
    }
}

int main(void) {
    struct sigaction action = {.sa_handler = on_fault, .sa_flags = SA_ONSTACK};
    sigaction(SIGSEGV, &action, NULL);
    page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *memory = mmap(NULL, 2 * WHOLE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_of(memory, WHOLE);
    faults(1);
    size_t needed = (depth + SPARE + 63) & ~(size_t)63;
    /* Memory below the needed size is inaccessible. */
    mprotect(memory, WHOLE, PROT_NONE);
    stack_of(memory, WHOLE + needed);
    faults(10);
    gpu_open();
    void *matrix;
    CHECK(cudaSetDevice(0));
    CHECK(cudaMalloc(&matrix, 1 << 20));
    CHECK(gpu_kernel(NULL));
    faults(1000);
    CHECK(gpu_kernel(NULL));
    printf("mended %d\n", (int)mended);
    return 0;
}
