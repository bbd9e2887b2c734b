/* Creates GPU memory without an address, many times, when no address space is left. Exit code 0. */
#include "calls.h"
#include <sys/resource.h>
#include <unistd.h>

enum { CHUNKS = 30000 };

int cuMemCreate(unsigned long long *handle, size_t bytes, const void *properties, unsigned long long flags);

int main(void) {
    static const struct { int kind, shared_as, location, number; char rest[32]; } properties = {1, 0, 1, 0, ""};
    unsigned long long handle;
    long pages = 0;
    CHECK(use_everything());
    usleep(300 * 1000);
    FILE *statm = fopen("/proc/self/statm", "r");
    if (!statm || fscanf(statm, "%ld", &pages) != 1) return 98;
    fclose(statm);
    struct rlimit limit = {pages * 4096, RLIM_INFINITY};
    setrlimit(RLIMIT_AS, &limit);
    for (int i = 0; i < CHUNKS; i++) CHECK(cuMemCreate(&handle, 2 << 20, &properties, 0));
    printf("created\n");
    return 0;
}
