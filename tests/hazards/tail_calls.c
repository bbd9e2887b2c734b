/* Calls functions of a library that is opened locally. They end with a jump to the CUDA runtime, so its calls
 * return here, but this program is not linked against a runtime. Another runtime is opened before. Exit code
 * 0.
 *
 * tail_calls RUNTIME LIBRARY */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
    void *place[1] = {NULL};
    void *other = argc == 3 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    void *library = other ? dlopen(argv[2], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library) return 99;
    int (*creates)(void **) = (int (*)(void **))dlsym(library, "tail_creates");
    int (*records)(void *) = (int (*)(void *))dlsym(library, "tail_records");
    int (*destroys)(void *) = (int (*)(void *))dlsym(library, "tail_destroys");
    for (int round = 0; round < 3; round++) {
        printf("%d ", creates(place));
        printf("%d ", records(place[0]));
        printf("%d\n", destroys(place[0]));
    }
    return 0;
}
