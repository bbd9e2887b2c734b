/* exit() in a callback of a launch, with an exit handler that launches too. Exit code 8. */
#include "calls.h"
#include <unistd.h>

static void at_exit(void) {
    CHECK(use_everything());
    static const char said[] = "at exit\n";
    if (write(1, said, sizeof said - 1) < 0) _exit(99);
}

static void end(void *unused) {
    (void)unused;
    exit(8);
}

int main(void) {
    CHECK(use_everything());
    atexit(at_exit);
    CHECK(launch_with(end, NULL));
    return 0;
}
