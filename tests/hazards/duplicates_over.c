/* After it used the GPU, the program puts its own files over all descriptors from 3 on, which closes the
 * earlier ones. The files must contain only what the program writes, and must stay open. Exit code 0. */
#define _GNU_SOURCE
#include "calls.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST = 256 };

int main(void) {
    struct stat is;
    long lost = 0;
    CHECK(use_everything());
    usleep(50 * 1000);
    int file = open("/tmp", O_TMPFILE | O_RDWR, 0600);
    for (int fd = 3; fd < MOST; fd++)
        if (fd != file) dup2(file, fd);
    for (int i = 0; i < 150; i++) {
        CHECK(use_everything());
        usleep(10 * 1000);
    }
    for (int fd = 3; fd < MOST; fd++) lost += fstat(fd, &is) != 0;
    fstat(file, &is);
    printf("%ld bytes that nobody wrote, %ld lost\n", (long)is.st_size, lost);
    return 0;
}
