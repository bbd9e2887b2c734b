/* A library whose constructor never returns, so its thread holds the loader's lock. The constructor first
 * calls a function of the program, if there is one, which shows that the lock is held. For
 * exit_beside_loader.c and exit_while_importing.py. */
#include <poll.h>
#include <stddef.h>

void loading_has_begun(void) __attribute__((weak));

__attribute__((constructor)) static void constructed(void) {
    if (loading_has_begun) loading_has_begun();
    poll(NULL, 0, -1);
}
