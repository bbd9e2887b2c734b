/* The program's signals reach its main thread, its only thread that takes them, while the GPU is in use. Exit
 * code 0. */
#include "gpu.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 2048, ALARMS = 20 };

static pthread_t main_thread;
static volatile sig_atomic_t alarms, children, elsewhere;

static void on_signal(int signal) {
    if (!pthread_equal(pthread_self(), main_thread)) elsewhere++;
    if (signal == SIGALRM) alarms++;
    if (signal == SIGCHLD) children++;
}

int main(void) {
    gpu_open();
    main_thread = pthread_self();
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    sigaction(SIGCHLD, &action, NULL);

    void *blas, *m[3];
    CHECK(cudaSetDevice(0));
    CHECK(cublasCreate_v2(&blas));
    gpu_matrices(N, m);
    CHECK(gpu_gemm(blas, N, m[0], m[1], m[2]));

    struct itimerval every = {{0, 10000}, {0, 10000}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &every, NULL);
    while (alarms < ALARMS) {
        for (int i = 0; i < 100; i++) CHECK(gpu_gemm(blas, N, m[0], m[1], m[2]));
        CHECK(cudaDeviceSynchronize());
    }
    setitimer(ITIMER_REAL, &never, NULL);

    fflush(stdout);
    pid_t child = fork();
    if (child == 0) _exit(0);
    while (children == 0) usleep(1000);
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {}

    /* The program's only thread blocks the signal, so it must stay pending. No other thread may take it. */
    sigset_t blocked, usr1;
    sigaction(SIGUSR1, &action, NULL);
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &usr1, NULL);
    kill(getpid(), SIGUSR1);
    usleep(50 * 1000);
    struct timespec patience = {5, 0};
    printf("SIGUSR1 waited: %s\n", sigtimedwait(&usr1, NULL, &patience) == SIGUSR1 ? "yes" : "no");
    pthread_sigmask(SIG_UNBLOCK, &usr1, NULL);

    sigemptyset(&blocked);
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    printf("alarms came: %s\n", alarms >= ALARMS ? "yes" : "no");
    printf("SIGCHLD came: %s\n", children == 1 ? "once" : "wrongly");
    printf("on another thread: %d\n", (int)elsewhere);
    printf("blocked in main: SIGALRM %d, SIGCHLD %d, SIGTERM %d\n", sigismember(&blocked, SIGALRM),
           sigismember(&blocked, SIGCHLD), sigismember(&blocked, SIGTERM));
    return 0;
}
