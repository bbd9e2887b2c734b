/* How much of a stack a call takes: the stack is painted beforehand, and what is no more of that colour was used. */
#ifndef PAINTED_H
#define PAINTED_H

#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

enum { PAINT = 0xa5 };

/* Of `bytes`, with a page below it that may not be touched. */
static inline unsigned char *painted_stack(size_t bytes) {
    unsigned char *at = mmap(NULL, bytes + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return NULL;
    mprotect(at, 4096, PROT_NONE);
    memset(at + 4096, PAINT, bytes);
    return at + 4096;
}

/* From its top down to the lowest byte that was written. */
static inline long used_of(const unsigned char *stack, size_t bytes) {
    size_t unused = 0;
    while (unused < bytes && stack[unused] == PAINT) unused++;
    return (long)(bytes - unused);
}

#endif
