/* What a program started by exec inherits: the descriptors that the program left open, and its signals. Exit
 * code 0. */
#define _GNU_SOURCE
#include "calls.h"
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static const char *const of_signals[] = {"SigIgn", "SigBlk", "SigCgt"};

/* The C library's signals 32 and 33, which it handles as soon as the process has a second thread. */
static const unsigned long long OF_C_LIBRARY = 3ull << 31;

static void show(void) {
    char line[256];
    int open_ones = 0;
    for (int fd = 0; fd < 1024; fd++) open_ones += fcntl(fd, F_GETFD) >= 0;
    printf("%d descriptors\n", open_ones);
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        for (size_t i = 0; i < sizeof of_signals / sizeof of_signals[0]; i++)
            if (strncmp(line, of_signals[i], 6) == 0)
                printf("%s %llx\n", of_signals[i], strtoull(line + 7, NULL, 16) & ~OF_C_LIBRARY);
    if (status) fclose(status);
}

int main(int argc, char **argv) {
    if (argc > 1) {
        show();
        return 0;
    }
    CHECK(use_everything());
    usleep(100 * 1000);
    CHECK(use_everything());
    fflush(stdout);
    execl("/proc/self/exe", argv[0], "again", NULL);
    return 99;
}
