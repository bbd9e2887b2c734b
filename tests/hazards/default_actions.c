/* Each signal after the first CUDA call, in a program without a handler for it. The program ends by it, or
 * continues. Exit code 0. */
#include "calls.h"
#include "each_signal.h"
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc < 2) return with_each_signal(argv);
    CHECK(use_everything());
    kill(getpid(), atoi(argv[1]));
    sleep(5);
    return 5;
}
