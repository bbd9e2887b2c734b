/* The program clears its environment before it uses the GPU, as programs do that change their user. The hook
 * finds no path in any variable. Exit code 0. */
#define _GNU_SOURCE
#include "calls.h"
#include <dlfcn.h>

extern char **environ;

int main(void) {
    clearenv();
    CHECK(use_everything());
    printf("variables: %s\n", environ && environ[0] ? environ[0] : "none");
    return 0;
}
