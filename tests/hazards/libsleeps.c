/* A library whose constructor waits for a signal and so holds the loader's lock. The program has a function
 * that the constructor calls once it holds the lock. For exit_beside_loader.c and exit_while_importing.py. */
#include <poll.h>
#include <stddef.h>

void loading_has_begun(void) __attribute__((weak));

__attribute__((constructor)) static void constructed(void) {
    if (loading_has_begun) loading_has_begun();
    poll(NULL, 0, -1);
}
