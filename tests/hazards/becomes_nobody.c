/* After it has used the GPU, the program changes its root to an empty folder and its user to nobody, and
 * continues. Only root can do this. Takes the folder. Exit code 0. */
#define _DEFAULT_SOURCE
#include "calls.h"
#include <grp.h>
#include <unistd.h>

enum { NOBODY = 65534 };

int main(int argc, char **argv) {
    if (argc != 2) return 64;
    CHECK(use_everything());
    if (geteuid() != 0) return 0;
    if (chroot(argv[1]) != 0 || chdir("/") != 0) return 1;
    if (setgroups(0, NULL) != 0 || setgid(NOBODY) != 0 || setuid(NOBODY) != 0) return 1;
    for (int i = 0; i < 120; i++) {
        CHECK(use_everything());
        usleep(10 * 1000);
    }
    printf("uid %d, root is empty: %d\n", (int)getuid(), access("/proc", F_OK) != 0);
    return 0;
}
