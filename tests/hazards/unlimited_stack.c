/* The stack limit is 64 GiB. Every thread whose creator sets no size gets a stack of this size, and address
 * space is short. Exit code 0. */
#include "calls.h"
#include "figures.h"
#include <sys/resource.h>
#include <unistd.h>

int main(int argc, char **argv) {
    struct rlimit stack, space = {4L << 30, RLIM_INFINITY};
    (void)argc;
    getrlimit(RLIMIT_STACK, &stack);
    if (argc < 2) {
        stack.rlim_cur = stack.rlim_max == RLIM_INFINITY ? 64L << 30 : stack.rlim_max;
        setrlimit(RLIMIT_STACK, &stack);
        execl("/proc/self/exe", argv[0], "again", NULL);
        return 99;
    }
    setrlimit(RLIMIT_AS, &space);
    long before = of_status("VmSize");
    CHECK(use_everything());
    usleep(100 * 1000);
    figure("KiB mapped", of_status("VmSize") - before);
    printf("done\n");
    return 0;
}
