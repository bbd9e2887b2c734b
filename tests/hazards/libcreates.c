/* A driver that creates GPU memory, and does nothing else; for many_chunks.c. */
#include <stddef.h>

int cuMemCreate(unsigned long long *handle, size_t bytes, const void *properties, unsigned long long flags) {
    static unsigned long long last;
    (void)bytes, (void)properties, (void)flags;
    return *handle = ++last, 0;
}
