/* Opens libraries that use CUDA, calls each of them in turn, and closes them. Exit code 0.
 *
 * opens ROUNDS FLAGS:LIBRARY...
 *
 * FLAGS: l, g: RTLD_LOCAL, RTLD_GLOBAL. d: RTLD_DEEPBIND. z: RTLD_LAZY. n: in its own namespace. c: closed
 * after each call, and opened again for the next. m: as c, but its old address is taken meanwhile, so that it
 * is mapped elsewhere. t: called in a new thread each time. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST = 8 };

static void *open_as(const char *how) {
    const char *path = strchr(how, ':') + 1;
    int flags = RTLD_NOW, own_namespace = 0;
    for (; *how != ':'; how++) {
        if (*how == 'g') flags |= RTLD_GLOBAL;
        if (*how == 'd') flags |= RTLD_DEEPBIND;
        if (*how == 'z') flags ^= RTLD_NOW | RTLD_LAZY;
        if (*how == 'n') own_namespace = 1;
    }
    void *handle = own_namespace ? dlmopen(LM_ID_NEWLM, path, flags) : dlopen(path, flags);
    if (!handle) {
        /* Prints no path, because one of them differs from run to run. */
        const char *why = strrchr(dlerror(), ':');
        printf("not opened%s\n", why ? why : "");
        exit(99);
    }
    return handle;
}

/* Maps something at this address, which is free. */
static void take_the_place_of(void *address) {
    void *page = (void *)((size_t)address & ~(size_t)4095);
    mmap(page, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
}

static void *call(void *handle) {
    static char text[128];
    int (*run)(char *, size_t) = (int (*)(char *, size_t))dlsym(handle, "user_run");
    run(text, sizeof text);
    return text;
}

int main(int argc, char **argv) {
    void *handles[MOST] = {NULL};
    setvbuf(stdout, NULL, _IONBF, 0);
    if (argc < 3 || argc - 2 > MOST) return 64;
    for (int round = 0; round < atoi(argv[1]); round++)
        for (int i = 0; i < argc - 2; i++) {
            const char *how = argv[i + 2], *path = strchr(how, ':');
            void *text = NULL;
            if (!handles[i]) handles[i] = open_as(how);
            if (memchr(how, 't', path - how)) {
                pthread_t thread;
                if (pthread_create(&thread, NULL, call, handles[i]) != 0) return 1;
                pthread_join(thread, &text);
            } else {
                text = call(handles[i]);
            }
            printf("%.*s: %s\n", (int)(path - how), how, (char *)text);
            if (memchr(how, 'c', path - how)) {
                void *runtime = dlsym(handles[i], "standin_kernel"), *user = dlsym(handles[i], "user_run");
                printf("closed: %d\n", dlclose(handles[i]));
                handles[i] = NULL;
                if (memchr(how, 'm', path - how)) {
                    take_the_place_of(runtime);
                    take_the_place_of(user);
                }
                /* Gives the hook's thread time to make a call into the closed library. */
                usleep(60 * 1000);
            }
        }
    for (int i = 0; i < argc - 2; i++)
        if (handles[i]) printf("closed: %d\n", dlclose(handles[i]));
    return 0;
}
