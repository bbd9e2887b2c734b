/* A program becomes a daemon after it used the GPU: it closes all descriptors that it does not know, then
 * opens its own, and continues. Its files must contain what it wrote, and nothing else. Exit code 0. */
#define _GNU_SOURCE
#include "calls.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST = 1024, FILES = 40 };

int main(void) {
    static int files[FILES];
    long strange = 0, lost = 0;
    CHECK(use_everything());
    usleep(50 * 1000);
    for (int round = 0; round < 3; round++) {
        for (int fd = 3; fd < MOST; fd++) close(fd);
        for (int i = 0; i < FILES; i++) files[i] = open("/tmp", O_TMPFILE | O_RDWR, 0600);
        for (int i = 0; i < 20; i++) {
            CHECK(use_everything());
            usleep(5 * 1000);
        }
        for (int i = 0; i < FILES; i++)
            if (write(files[i], "mine", 4) != 4) lost++;
        usleep(1100 * 1000 / 3);
        for (int i = 0; i < FILES; i++) {
            struct stat is;
            if (fstat(files[i], &is) != 0) lost++;
            else if (is.st_size != 4) strange++;
        }
    }
    printf("%ld files with what is not the program's, %ld lost\n", strange, lost);
    return 0;
}
