/* After the GPU was used, the program loads a library with its own C++ runtime, found by a path in the
 * library. Takes the library. Exit code 0. */
#include "calls.h"
#include <dlfcn.h>

int main(int argc, char **argv) {
    if (argc != 2) return 64;
    CHECK(use_everything());
    void *library = dlopen(argv[1], RTLD_NOW);
    if (!library) {
        printf("not opened\n");
        return 1;
    }
    const char *(*run)(void) = (const char *(*)(void))dlsym(library, "needs_run");
    printf("%s\n", run());
    return 0;
}
