/* The program takes its own backtraces, as crash reporters and samplers do, in a callback of a launch. The
 * hook may add only its own frames. Exit code 0. */
#include "calls.h"
#include "figures.h"
#include <execinfo.h>
#include <unwind.h>

static int frames, with_name;

static _Unwind_Reason_Code count(struct _Unwind_Context *context, void *unused) {
    (void)context, (void)unused;
    frames++;
    return _URC_NO_REASON;
}

static void look(void *unused) {
    (void)unused;
    void *addresses[64];
    frames = 0;
    _Unwind_Backtrace(count, NULL);
    with_name = backtrace(addresses, 64);
}

int main(void) {
    for (int i = 0; i < 3; i++) CHECK(launch_with(look, NULL));
    figure("frames", frames);
    printf("both alike: %s\n", frames - with_name <= 1 && with_name - frames <= 1 ? "yes" : "no");
    printf("to the end: %s\n", frames >= 4 ? "yes" : "no");
    return 0;
}
