/* As in Python: the library that uses CUDA is opened with RTLD_LOCAL, and CUDA's libraries with it. None of
 * them is in the global scope, so RTLD_NEXT finds nothing there. Takes the path of libcaller.so. Exit code 0.
 */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
    if (argc != 2) return 64;
    void *caller = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!caller) {
        fprintf(stderr, "%s\n", dlerror());
        return 99;
    }
    int (*run)(int) = (int (*)(int))dlsym(caller, "caller_run");
    printf("first time: %d\n", run(50));
    printf("second time: %d\n", run(50));
    printf("closed: %d\n", dlclose(caller));
    return 0;
}
