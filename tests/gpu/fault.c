/* Prints the signal, the thread and the stack of a fault that ends the process. */
#define _GNU_SOURCE
#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <ucontext.h>
#include <unistd.h>

static void faulted(int number, siginfo_t *about, void *context) {
    char name[32] = "", line[256];
    void *frames[64];
    prctl(PR_GET_NAME, name);
    ucontext_t *where = context;
    int length = snprintf(line, sizeof line, "FAULT signal %d code %d address %p at %p in thread %s (%d of %d)\n", number,
        about->si_code, about->si_addr, (void *)where->uc_mcontext.gregs[REG_RIP], name, gettid(), getpid());
    write(2, line, length);
    backtrace_symbols_fd(frames, backtrace(frames, 64), 2);
    signal(number, SIG_DFL);
    raise(number);
}
void watch_faults(void) {
    void *frames[4];
    backtrace(frames, 4);
    struct sigaction action = {0};
    action.sa_sigaction = faulted;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, 0);
    sigaction(SIGBUS, &action, 0);
    sigaction(SIGABRT, &action, 0);
}
