/* dlerror() reports the program's last failure, whatever calls came after it. Exit code 0. */
#include "calls.h"
#include <dlfcn.h>

static void show(const char *when) {
    const char *error = dlerror();
    printf("%s: %s\n", when, error ? error : "none");
}

int main(void) {
    dlopen("libnobody_has_this.so", RTLD_NOW);
    CHECK(cudaSetDevice(0));
    show("pending, then the first call");
    CHECK(use_everything());
    show("none pending");
    dlsym(RTLD_DEFAULT, "nobody_has_this");
    CHECK(use_everything());
    CHECK(launch());
    show("a symbol");
    show("read once");
    return 0;
}
