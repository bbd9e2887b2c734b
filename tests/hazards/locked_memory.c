/* The process locks all its memory, current and future, so the hook's mappings take real memory. Exit code 0.
 */
#include "calls.h"
#include "figures.h"
#include <sys/mman.h>
#include <unistd.h>

int main(void) {
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) return 77;
    CHECK(use_everything());
    usleep(200 * 1000);
    CHECK(use_everything());
    figure("locked KiB", of_status("VmLck"));
    printf("done\n");
    return 0;
}
