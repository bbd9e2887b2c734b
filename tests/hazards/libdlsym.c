/* Interposes dlsym itself, as some preloads and programs do. It counts the lookups of NCCL's group functions,
 * and makes a lookup itself within each. At exit it prints the count. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef void *(*dlsym_function)(void *, const char *);

static int asked;

static dlsym_function real(void) {
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
    static dlsym_function found;
    for (int i = 0; !found && i < 3; i++) found = (dlsym_function)dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    return found;
}

void *dlsym(void *handle, const char *name) {
    static __thread int within;
    if (handle != RTLD_NEXT && !within && strncmp(name, "ncclGroup", 9) == 0) {
        within = 1;
        __atomic_fetch_add(&asked, 1, __ATOMIC_RELAXED);
        /* Called by its own name, so the first dlsym in the process answers. */
        dlsym(handle, "ncclGroupEnd");
        within = 0;
    }
    return real()(handle, name);
}

__attribute__((destructor)) static void told(void) { printf("asked %d times\n", asked); }
