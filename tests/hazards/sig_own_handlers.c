/* A program finds the signal actions that it has set, by each function that returns them, before and after
 * the GPU is used. A child that shares its memory has its own handlers, which do not change the parent's.
 * Exit code 0. */
#define _GNU_SOURCE
#include "gpu.h"
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

sighandler_t bsd_signal(int, sighandler_t);
sighandler_t sysv_signal(int, sighandler_t);
sighandler_t ssignal(int, sighandler_t);

static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
enum { SIGNALS = sizeof signals / sizeof *signals };

static char *page;
static volatile sig_atomic_t mended;

static void one(int signal) {
    (void)signal;
    mended++;
    mprotect(page, 4096, PROT_READ | PROT_WRITE);
}

static void two(int signal, siginfo_t *info, void *context) {
    (void)context;
    if ((char *)info->si_addr == page) one(signal);
}

static const char *name(const void *handler) {
    if (handler == (void *)SIG_DFL) return "default";
    if (handler == (void *)SIG_IGN) return "ignore";
    if (handler == (void *)SIG_HOLD) return "hold";
    if (handler == (void *)one) return "one";
    if (handler == (void *)two) return "two";
    return "somebody else's";
}

static void tell(const char *what, const struct sigaction *action) {
    uint64_t mask = 0;
    memcpy(&mask, &action->sa_mask, sizeof mask);
    printf("  %s: %s, flags %x, mask %llx, %s restorer\n", what, name((void *)action->sa_handler), (unsigned)action->sa_flags,
           (unsigned long long)mask, action->sa_restorer ? "a" : "no");
}

static void ask(int signal, const char *what) {
    struct sigaction action;
    memset(&action, 0x55, sizeof action);
    if (sigaction(signal, NULL, &action) != 0) printf("  %d: refused\n", signal);
    tell(what, &action);
}

static void ask_all(const char *when) {
    printf("%s\n", when);
    for (int i = 0; i < SIGNALS; i++) ask(signals[i], strsignal(signals[i]));
}

static void set(int signal, void (*handler)(int), int flags, int blocked) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags}, old;
    memset(&old, 0x55, sizeof old);
    if (blocked) sigaddset(&action.sa_mask, blocked);
    if (sigaction(signal, &action, &old) != 0) printf("  %d: refused\n", signal);
    tell("before", &old);
}

static void fault(void) {
    mprotect(page, 4096, PROT_NONE);
    *(volatile char *)page = 1;
}

static void all_functions(void) {
    for (int i = 0; i < SIGNALS; i++) {
        int it = signals[i];
        printf("%s\n", strsignal(it));
        static const int flags[] = {0, SA_SIGINFO, SA_ONSTACK, SA_RESETHAND, SA_NODEFER | SA_RESTART, SA_SIGINFO | SA_ONSTACK | SA_RESETHAND};
        for (unsigned f = 0; f < sizeof flags / sizeof *flags; f++) {
            set(it, f & 1 ? (void (*)(int))(void *)two : one, flags[f], f & 2 ? SIGUSR2 : 0);
            ask(it, "sigaction");
        }
        printf("  signal was %s\n", name((void *)signal(it, one)));
        ask(it, "signal");
        siginterrupt(it, 1);
        ask(it, "siginterrupt");
        printf("  bsd_signal was %s\n", name((void *)bsd_signal(it, (void (*)(int))(void *)two)));
        ask(it, "bsd_signal");
        siginterrupt(it, 0);
        printf("  sysv_signal was %s\n", name((void *)sysv_signal(it, one)));
        ask(it, "sysv_signal");
        printf("  ssignal was %s\n", name((void *)ssignal(it, SIG_IGN)));
        ask(it, "ssignal");
        printf("  sigset was %s\n", name((void *)sigset(it, one)));
        printf("  sigset was %s\n", name((void *)sigset(it, SIG_HOLD)));
        ask(it, "sigset");
        printf("  sigset was %s\n", name((void *)sigset(it, SIG_DFL)));
        ask(it, "sigset");
        printf("  SIG_ERR: %d\n", signal(it, SIG_ERR) == SIG_ERR);
        set(it, SIG_DFL, 0, 0);
    }
    struct sigaction action;
    printf("none such: %d %d %d\n", sigaction(0, NULL, &action), sigaction(65, NULL, &action), signal(SIGKILL, one) == SIG_ERR);
}

static void child(const char *what, pid_t pid) {
    if (pid == 0) {
        for (int i = 0; i < SIGNALS; i++) {
            struct sigaction old;
            sigaction(signals[i], NULL, &old);
            if (signals[i] == SIGSEGV && old.sa_handler != one) _exit(90);
            signal(signals[i], SIG_DFL);
            sigaction(signals[i], NULL, &old);
            if (old.sa_handler != SIG_DFL) _exit(91);
        }
        *(volatile int *)(uintptr_t)8 = 1;
        _exit(92);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    printf("%s: exit %d, signal %d\n", what, WIFEXITED(status) ? WEXITSTATUS(status) : -1,
           WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    int before = mended;
    fault();
    printf("the parent's handler: %s\n", mended == before + 1 ? "is there" : "is gone");
    ask(SIGSEGV, "and known");
}

int main(int argc, char **argv) {
    if (argc > 1) {
        ask_all("after exec");
        return 0;
    }
    page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    set(SIGFPE, SIG_IGN, 0, 0);
    set(SIGILL, one, SA_RESTART, SIGUSR1);
    ask_all("at the beginning");
    gpu_open();
    void *memory;
    CHECK(cudaSetDevice(0));
    CHECK(cudaMalloc(&memory, 1 << 20));
    CHECK(gpu_kernel(NULL));
    ask_all("after the GPU was used");
    all_functions();
    set(SIGSEGV, one, 0, 0);
    fault();
    fflush(stdout);
    child("fork", fork());
    fflush(stdout);
    child("vfork", vfork());
    fflush(stdout);
    child("clone", (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));

    /* A handler that runs once, and then the default action. */
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        set(SIGSEGV, one, SA_RESETHAND, 0);
        fault();
        ask(SIGSEGV, "once");
        fflush(stdout);
        fault();
        _exit(93);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    printf("twice: signal %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : 0);

    /* An ignored signal stays ignored across exec. A handled one gets its default action. */
    set(SIGSEGV, SIG_IGN, 0, 0);
    set(SIGBUS, one, 0, 0);
    set(SIGTERM, SIG_IGN, 0, 0);
    fflush(stdout);
    execl("/proc/self/exe", argv[0], "again", (char *)NULL);
    return 1;
}
