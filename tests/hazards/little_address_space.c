/* The limit of address space is 4 GiB: checks how much of it is left after the GPU was used. Exit code 0. */
#include "calls.h"
#include "figures.h"
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { STEP = 1 << 20 };

int main(void) {
    struct rlimit limit = {4L << 30, RLIM_INFINITY};
    setrlimit(RLIMIT_AS, &limit);
    CHECK(use_everything());
    usleep(200 * 1000);
    CHECK(use_everything());
    long steps = 0;
    while (mmap(NULL, STEP, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) != MAP_FAILED) steps++;
    figure("KiB taken", (4L << 20) - steps * (STEP >> 10));
    printf("done\n");
    return 0;
}
