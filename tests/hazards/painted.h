/* Measures how much stack a call takes: the stack is filled with a pattern, and bytes that have changed were
 * used. */
#ifndef PAINTED_H
#define PAINTED_H

#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

enum { PAINT = 0xa5 };

/* A stack of `bytes`, with an inaccessible page below it. */
static inline unsigned char *painted_stack(size_t bytes) {
    unsigned char *at = mmap(NULL, bytes + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return NULL;
    mprotect(at, 4096, PROT_NONE);
    memset(at + 4096, PAINT, bytes);
    return at + 4096;
}

/* The bytes from the top of the stack down to the lowest one that was written. */
static inline long used_of(const unsigned char *stack, size_t bytes) {
    size_t unused = 0;
    while (unused < bytes && stack[unused] == PAINT) unused++;
    return (long)(bytes - unused);
}

#endif
