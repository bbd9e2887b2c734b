/* A program linked against its own C++ runtime, which a path in the program finds before any other. Exit code
 * 0. */
#include "calls.h"

const char *which_cxx(void);

int main(void) {
    CHECK(use_everything());
    printf("%s\n", which_cxx());
    return 0;
}
