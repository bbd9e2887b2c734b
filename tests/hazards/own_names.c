/* The program's own functions have names that POSIX uses but ISO C leaves to programs. Built with -rdynamic,
 * so libraries find them too. Exit code 0. */
#include "calls.h"
#include <time.h>

static int calls;

#define OWN(name) \
    double name(double given) { \
        calls++; \
        return given; \
    }
OWN(bcmp) OWN(close) OWN(connect) OWN(fcntl) OWN(ftruncate) OWN(geteuid) OWN(gethostname) OWN(getpid) OWN(getsockopt)
OWN(gettid) OWN(madvise) OWN(memfd_create) OWN(poll) OWN(prctl) OWN(readlink) OWN(recv) OWN(sched_yield) OWN(send)
OWN(sigfillset) OWN(socket) OWN(statx) OWN(syscall)

/* The headers included above declare these. */
double own_on_exit(double) __asm__("on_exit");
double own_getcwd(double) __asm__("getcwd");
double own_clock_nanosleep(double) __asm__("clock_nanosleep");
OWN(own_on_exit) OWN(own_getcwd) OWN(own_clock_nanosleep)

int main(void) {
    CHECK(use_everything());
    struct timespec while_it_is_told = {.tv_nsec = 600 * 1000 * 1000};
    nanosleep(&while_it_is_told, NULL);
    CHECK(use_everything());
    printf("%d calls of my own\n", calls);
    return 0;
}
