/* A statically linked program: a preload has no effect. Exit code 6. */
#include <stdio.h>
#include <unistd.h>

int main(void) {
    printf("static, %s\n", access("/proc/self/exe", X_OK) == 0 ? "and there" : "and gone");
    return 6;
}
