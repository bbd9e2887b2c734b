/* The program's only thread ends by the bare system call exit, without the C library. Exit code 5. */
#define _GNU_SOURCE
#include "calls.h"
#include <sys/syscall.h>
#include <unistd.h>

int main(void) {
    CHECK(use_everything());
    syscall(SYS_exit, 5);
    return 1;
}
