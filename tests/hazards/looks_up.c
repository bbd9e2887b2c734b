/* Looks up functions by dlsym in every possible way, and calls the results. They must be the same with any
 * preload.
 *
 * asks UNRELATED: a library unrelated to CUDA, with a function of the same name. Exit code 0. */
#define _GNU_SOURCE
#include "calls.h"
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

enum { THREADS = 8, ROUNDS = 200 };

typedef int (*version_function)(int *);
typedef int (*group_function)(void);
typedef int (*reduce_function)(const void *, void *, size_t, int, int, void *, void *);

static void *nccl;
static int before_main = -1, in_handler = -1;

/* The file that contains an address. Used for functions that no CUDA library and no preload provides. */
static const char *file_of(void *address) {
    Dl_info info;
    if (!address || !dladdr(address, &info)) return "nowhere";
    const char *name = strrchr(info.dli_fname, '/');
    return name ? name + 1 : info.dli_fname;
}

static group_function group_start(void *handle) { return (group_function)dlsym(handle, "ncclGroupStart"); }

__attribute__((constructor)) static void constructed(void) {
    void *handle = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (handle && group_start(handle)) before_main = group_start(handle)();
}

static void handle(int number) {
    (void)number;
    in_handler = group_start(nccl)();
}

static void *ask(void *unused) {
    for (int i = 0; i < ROUNDS; i++)
        if (!group_start(nccl) || group_start(nccl)() != 0) return (void *)1;
    return unused;
}

static void tell_error(const char *what) {
    const char *error = dlerror();
    printf("%s: %s\n", what, error ? error : "no error");
}

int main(int argc, char **argv) {
    static char memory[64];
    void *communicator, *failed = NULL, *result;
    pthread_t threads[THREADS];
    unique_id_t id;
    int version = 0;
    nccl = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (argc < 2 || !nccl) return 99;
    void *unrelated = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL), *program = dlopen(NULL, RTLD_NOW);
    if (!unrelated || !program) return 99;
    printf("before main: %d\n", before_main);

    reduce_function by_handle = (reduce_function)dlsym(nccl, "ncclAllReduce");
    reduce_function again = (reduce_function)dlsym(nccl, "ncclAllReduce");
    reduce_function by_default = (reduce_function)dlsym(RTLD_DEFAULT, "ncclAllReduce");
    reduce_function by_null = (reduce_function)dlsym(NULL, "ncclAllReduce");
    reduce_function by_next = (reduce_function)dlsym(RTLD_NEXT, "ncclAllReduce");
    reduce_function by_program = (reduce_function)dlsym(program, "ncclAllReduce");
    printf("twice alike: %d, default like NULL: %d\n", by_handle == again, by_default == by_null);
    CHECK(ncclGetUniqueId(&id));
    CHECK(((int (*)(void **, int, unique_id_t, int))dlsym(nccl, "ncclCommInitRank"))(&communicator, 1, id, 0));
    reduce_function all[] = {by_handle, by_default, by_null, by_next, by_program, ncclAllReduce};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) CHECK(all[i](memory, memory, 4, 9, 0, communicator, NULL));
    CHECK(((int (*)(void *))dlsym(nccl, "ncclCommDestroy"))(communicator));

    void *other = dlsym(unrelated, "ncclGroupStart");
    printf("of another library: %d, in %s\n", ((group_function)other)(), file_of(other));
    printf("not stood in front of: %d, in %s\n", ((version_function)dlsym(nccl, "ncclGetVersion"))(&version),
           file_of(dlsym(nccl, "ncclGetVersion")));
    printf("next of the C library: %s\n", file_of(dlsym(RTLD_NEXT, "getppid")));

    dlerror();
    printf("none: %p\n", dlsym(nccl, "ncclNoSuchFunction"));
    tell_error("none");
    printf("none of that library's: %p\n", dlsym(unrelated, "cuLaunchKernel"));
    tell_error("none of that library's");
    printf("without a name: %p\n", dlsym(nccl, ""));
    dlerror();
    group_start(nccl);
    tell_error("found");

    signal(SIGUSR1, handle);
    raise(SIGUSR1);
    printf("in a handler: %d\n", in_handler);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, ask, NULL) != 0) return 1;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], &result);
        if (result) failed = result;
    }
    printf("in threads: %s\n", failed ? "failed" : "answered");
    return 0;
}
