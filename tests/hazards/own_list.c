/* The program has its own dl_iterate_phdr, as programs do that cache the list of objects for fast exceptions.
 * At its first call it looks up the next one by dlsym. Built with -rdynamic. Exit code 0. */
#define _GNU_SOURCE
#include "calls.h"
#include <dlfcn.h>
#include <link.h>

typedef int (*callback_t)(struct dl_phdr_info *, size_t, void *);
typedef int (*walk_t)(callback_t, void *);

int dl_iterate_phdr(callback_t callback, void *data) {
    static walk_t next;
    if (!next) next = (walk_t)dlsym(RTLD_NEXT, "dl_iterate_phdr");
    return next(callback, data);
}

static int count(struct dl_phdr_info *info, size_t size, void *objects) {
    (void)info, (void)size;
    ++*(int *)objects;
    return 0;
}

int main(void) {
    int objects = 0;
    CHECK(use_everything());
    CHECK(dl_iterate_phdr(count, &objects));
    printf("objects: %s\n", objects > 2 ? "some" : "too few");
    return 0;
}
