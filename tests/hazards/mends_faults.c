/* A program that finds which of its pages were written, as garbage collectors do: it protects them, and
 * repairs each fault. It times its faults with few and with 20,000 mappings in the process, each as the
 * shortest of many rounds. Takes the number of rounds and of pages. Exit code 0. */
#include "calls.h"
#include "figures.h"
#include <signal.h>
#include <sys/mman.h>
#include <time.h>

enum { PAGE = 4096, MAPPINGS = 20000 };

static int rounds, page_count;

static char *pages;
static volatile sig_atomic_t faults;

static void on_fault(int signal, siginfo_t *info, void *context) {
    (void)context;
    char *at = (char *)((size_t)info->si_addr & ~(size_t)(PAGE - 1));
    if (at < pages || at >= pages + (size_t)page_count * PAGE) {
        struct sigaction action = {.sa_handler = SIG_DFL};
        sigaction(signal, &action, NULL);
        return;
    }
    faults++;
    mprotect(at, PAGE, PROT_READ | PROT_WRITE);
}

static long nanoseconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

/* The time of one fault. */
static long shortest(void) {
    long best = 1L << 60;
    for (int round = 0; round < rounds; round++) {
        mprotect(pages, (size_t)page_count * PAGE, PROT_READ);
        long begun = nanoseconds();
        /* Every second page, so that each repaired page is a separate mapping. */
        for (int i = 0; i < page_count; i += 2) pages[(size_t)i * PAGE] = 1;
        long took = (nanoseconds() - begun) / (page_count / 2);
        if (took < best) best = took;
    }
    return best;
}

int main(int argc, char **argv) {
    if (argc != 3) return 64;
    rounds = atoi(argv[1]);
    page_count = atoi(argv[2]);
    pages = mmap(NULL, (size_t)page_count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
    CHECK(use_everything());
    figure("ns a fault", shortest());
    char *many = mmap(NULL, (size_t)MAPPINGS * 2 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < MAPPINGS; i++) mprotect(many + (size_t)i * 2 * PAGE, PAGE, PROT_NONE);
    figure("ns a fault, 20,000 mappings", shortest());
    CHECK(use_everything());
    printf("%d faults\n", (int)faults);
    return 0;
}
