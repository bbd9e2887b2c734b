/* The program's own malloc may only be called by its one thread: a call from another thread ends the program.
 * Exit code 0. */
#define _GNU_SOURCE
#include "calls.h"
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ARENA = 64 << 20, ALIGNMENT = 16 };

static char arena[ARENA] __attribute__((aligned(ALIGNMENT)));
static size_t used;
static pid_t whose;

static void only_own_thread(void) {
    pid_t thread = syscall(SYS_gettid);
    if (!whose) whose = thread;
    if (thread == whose) return;
    static const char said[] = "another thread is in the program's malloc\n";
    if (write(1, said, sizeof said - 1) < 0) _exit(99);
    abort();
}

/* The size is stored in front of each block. */
static void *take(size_t bytes, size_t alignment) {
    only_own_thread();
    size_t from = (used + ALIGNMENT + alignment - 1) / alignment * alignment;
    if (bytes > ARENA || from + bytes > ARENA) {
        errno = ENOMEM;
        return NULL;
    }
    used = from + bytes;
    memcpy(arena + from - sizeof bytes, &bytes, sizeof bytes);
    return arena + from;
}

void *malloc(size_t bytes) { return take(bytes, ALIGNMENT); }
void *calloc(size_t count, size_t bytes) { return take(count * bytes, ALIGNMENT); }
void *memalign(size_t alignment, size_t bytes) { return take(bytes, alignment); }
void *aligned_alloc(size_t alignment, size_t bytes) { return take(bytes, alignment); }

int posix_memalign(void **place, size_t alignment, size_t bytes) { return (*place = take(bytes, alignment)) ? 0 : ENOMEM; }

void free(void *memory) {
    if (!memory) return;
    only_own_thread();
    if ((char *)memory >= arena && (char *)memory < arena + ARENA) return;
    static const char said[] = "a block that is not the program's\n";
    if (write(1, said, sizeof said - 1) < 0) _exit(99);
    abort();
}

void *realloc(void *memory, size_t bytes) {
    size_t before = 0;
    void *new = take(bytes, ALIGNMENT);
    if (!memory || !new) return new;
    memcpy(&before, (char *)memory - sizeof before, sizeof before);
    return memcpy(new, memory, before < bytes ? before : bytes);
}

int main(void) {
    for (int i = 0; i < 50; i++) {
        CHECK(use_everything());
        usleep(10 * 1000);
    }
    printf("done\n");
    return 0;
}
