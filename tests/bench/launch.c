/* Simulates a training loop: calls in batches, each followed by a pause in which the hook's thread may catch up.
 * Prints nanoseconds per call.
 *
 * launch cost BATCH [off]    lines of "function best median"
 * launch shapes COUNT        COUNT distinct GEMMs, four of each; prints resident KiB, in all and without files
 * launch communicators COUNT COUNT communicators, four collectives on each; prints resident KiB likewise
 * launch fold BATCH          nanoseconds that the thread named xpu-top spends on a record */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { REPEATS = 25, PAUSE_US = 70 * 1000, BF16 = 14, COMPUTE_32F = 68, NCCL_BF16 = 9, RANKS = 8, EXECUTABLES = 500 };

typedef struct { unsigned x, y, z; } dim3;
typedef struct { char bytes[128]; } unique_id;

static int (*launch_kernel)(const void *, dim3, dim3, void **, size_t, void *);
static int (*gemm_ex)(void *, int, int, int, int, int, const void *, const void *, int, int, const void *, int, int,
                      const void *, void *, int, int, int, int);
static int (*sgemm)(void *, int, int, int, int, int, const void *, const void *, int, const void *, int, const void *, void *,
                    int);
static int (*matmul)(void *, void *, const void *, const void *, void *, const void *, void *, const void *, const void *,
                     void *, void *, void *, const void *, void *, size_t, void *);
static int (*create)(void **);
static int (*all_reduce)(const void *, void *, size_t, int, int, void *, void *);
static int (*init_rank)(void **, int, unique_id, int);
static int (*instantiate)(void **, void *, unsigned long long);
static int (*graph_launch)(void *, void *);
static int (*group_start)(void), (*group_end)(void);
static int (*event_record)(void *, void *), (*stream_wait)(void *, void *, unsigned);
static void *blas, *comm;

static void find(void *place, const char *name) {
    *(void **)place = dlsym(RTLD_DEFAULT, name);
    if (!*(void **)place) {
        fprintf(stderr, "no %s\n", name);
        exit(99);
    }
}

static void kernel(void) {
    dim3 one = {1, 1, 1};
    launch_kernel(&blas, one, one, NULL, 0, NULL);
}

static void gemm_of(int n) {
    gemm_ex(blas, 0, 0, n, n, n, NULL, NULL, BF16, n, NULL, BF16, n, NULL, NULL, BF16, n, COMPUTE_32F, -1);
}

static void gemm(void) { gemm_of(4096); }

/* As a program calls it that looks up functions by the library's handle. */
static __typeof__(gemm_ex) looked_up;

static void gemm_by_handle(void) {
    looked_up(blas, 0, 0, 4096, 4096, 4096, NULL, NULL, BF16, 4096, NULL, BF16, 4096, NULL, NULL, BF16, 4096, COMPUTE_32F, -1);
}

static void *volatile found;

static void look_up(void) { found = dlsym(RTLD_DEFAULT, "malloc"); }

static void single(void) {
    sgemm(blas, 0, 0, 4096, 4096, 4096, NULL, NULL, 4096, NULL, 4096, NULL, NULL, 4096);
}

/* What cublasLtMatrixLayoutCreate would make. */
static uint64_t layouts[3][14] = {{14, 4096, 4096, 1}, {14, 4096, 4096, 2}, {14, 4096, 4096, 3}};

static void light(void) {
    matmul(blas, layouts, NULL, NULL, layouts[0], NULL, layouts[1], NULL, NULL, layouts[2], NULL, layouts[2], NULL, NULL, 0,
           NULL);
}

static void reduce(void) { all_reduce(NULL, NULL, 1 << 20, NCCL_BF16, 0, comm, NULL); }

static void group(void) {
    group_start();
    reduce();
    group_end();
}

/* A stream for communication, and its event. The GEMMs are on the default stream. */
static char side, reduced;

static void record(void) { event_record(&reduced, &side); }

static void wait_for(void) { stream_wait(NULL, &reduced, 0); }

/* The number of graphs in a server that captured one for each batch size. */
static void *executables[EXECUTABLES];

static void graph(void) {
    static int next;
    graph_launch(executables[next++ % EXECUTABLES], NULL);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static int ascending(const void *a, const void *b) { return (*(double *)a > *(double *)b) - (*(double *)a < *(double *)b); }

static void cost(const char *name, void (*call)(void), int batch) {
    double took[REPEATS];
    usleep(PAUSE_US);
    for (int i = 0; i < batch; i++) call();
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        usleep(PAUSE_US);
        /* The caches are cold after the pause; those of a training loop are warm. */
        for (int i = 0; i < batch / 10; i++) call();
        double before = now();
        for (int i = 0; i < batch; i++) call();
        took[repeat] = (now() - before) / batch;
    }
    qsort(took, REPEATS, sizeof took[0], ascending);
    printf("%s %.2f %.2f\n", name, took[0], took[REPEATS / 2]);
}

static int count(const char *name) {
    uint64_t (*counter)(const char *);
    *(void **)&counter = dlsym(RTLD_DEFAULT, "xpu_top_counter");
    return counter ? (int)counter(name) : 0;
}

/* The CPU time in nanoseconds of the hook's thread, and of the ZeroMQ threads that it started. */
static double hooks_thread(void) {
    double spent = 0;
    struct dirent *entry;
    DIR *tasks = opendir("/proc/self/task");
    while ((entry = readdir(tasks))) {
        char path[320], name[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        FILE *file = fopen(path, "r");
        if (!file) continue;
        if (fgets(name, sizeof name, file) && strcmp(name, "xpu-top\n") == 0) {
            fclose(file);
            snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", entry->d_name);
            file = fopen(path, "r");
            double one = 0;
            if (fscanf(file, "%lf", &one) == 1) spent += one;
        }
        fclose(file);
    }
    closedir(tasks);
    return spent;
}

/* The thread's time with records, minus its time without any. */
static void fold(int batch) {
    double idle = 0, busy = 0;
    for (int repeat = 0; repeat < 2 * REPEATS; repeat++) {
        double before = hooks_thread();
        for (int i = 0; repeat % 2 && i < batch; i++) gemm();
        usleep(PAUSE_US);
        *(repeat % 2 ? &busy : &idle) += hooks_thread() - before;
    }
    printf("record %.1f\n", (busy - idle) / REPEATS / batch);
}

/* Shows the hook which stream runs GEMMs and which communicates; the hook times a GEMM for this. Returns how
 * many GEMMs it has timed. */
static int show_streams(void) {
    int (*sample)(uint32_t, uint32_t);
    *(void **)&sample = dlsym(RTLD_DEFAULT, "xpu_top_set_sampling");
    const char *usual = getenv("XPU_TOP_SAMPLE");
    unsigned rate = 1;
    if (sample && usual && sscanf(usual, "gemm=%u", &rate) == 1) sample(1, rate);
    gemm();
    if (sample) sample(rate, rate);
    all_reduce(NULL, NULL, 1 << 20, NCCL_BF16, 0, comm, &side);
    record();
    return count("timed");
}

/* Prints all resident memory, and the part that no other process shares: the ranks of a host share one copy
 * of a library's code. */
static void print_memory(void) {
    FILE *status = fopen("/proc/self/status", "r");
    char line[256];
    int all = 0, of_files = 0;
    while (fgets(line, sizeof line, status)) {
        sscanf(line, "VmRSS: %d", &all);
        sscanf(line, "RssFile: %d", &of_files);
    }
    fclose(status);
    printf("resident %d %d\n", all, all - of_files);
}

int main(int argc, char **argv) {
    static const char *libraries[] = {"libcudart.so.13", "libcublas.so.13", "libcublasLt.so.13", "libnccl.so.2"};
    if (argc < 3) return 64;
    for (int i = 0; i < 4; i++)
        if (!dlopen(libraries[i], RTLD_NOW | RTLD_GLOBAL)) {
            fprintf(stderr, "%s\n", dlerror());
            return 99;
        }
    find(&launch_kernel, "cudaLaunchKernel");
    find(&gemm_ex, "cublasGemmEx");
    find(&sgemm, "cublasSgemm_v2");
    find(&matmul, "cublasLtMatmul");
    find(&create, "cublasCreate_v2");
    find(&all_reduce, "ncclAllReduce");
    find(&init_rank, "ncclCommInitRank");
    find(&instantiate, "cudaGraphInstantiate");
    find(&graph_launch, "cudaGraphLaunch");
    find(&group_start, "ncclGroupStart");
    find(&group_end, "ncclGroupEnd");
    find(&event_record, "cudaEventRecord");
    find(&stream_wait, "cudaStreamWaitEvent");
    *(void **)&looked_up = dlsym(dlopen(libraries[1], RTLD_NOW | RTLD_NOLOAD), "cublasGemmEx");
    unique_id id;
    memset(&id, 7, sizeof id);
    create(&blas);
    init_rank(&comm, RANKS, id, 0);
    int number = atoi(argv[2]);
    if (strcmp(argv[1], "shapes") == 0) {
        for (int i = 0; i < number * 4; i++) {
            gemm_of(64 + i % number);
            if (i % 128 == 127) usleep(15 * 1000);
        }
        usleep(1500 * 1000);
        print_memory();
        return 0;
    }
    if (strcmp(argv[1], "communicators") == 0) {
        for (int i = 1; i < number; i++) {
            void *other;
            memcpy(id.bytes, &i, sizeof i);
            init_rank(&other, RANKS, id, 0);
            for (int k = 0; k < 4; k++) all_reduce(NULL, NULL, 1 << 20, NCCL_BF16, 0, other, NULL);
        }
        usleep(1500 * 1000);
        print_memory();
        return 0;
    }
    if (strcmp(argv[1], "fold") == 0) {
        gemm();
        fold(number);
        return 0;
    }
    void (*set_enabled)(int);
    *(void **)&set_enabled = dlsym(RTLD_DEFAULT, "xpu_top_set_enabled");
    int shown = show_streams();
    if (argc > 3 && set_enabled) set_enabled(0);
    cost("cudaLaunchKernel", kernel, number);
    cost("cublasGemmEx", gemm, number);
    cost("by_handle", gemm_by_handle, number);
    cost("dlsym", look_up, number);
    cost("cublasSgemm", single, number);
    cost("cublasLtMatmul", light, number);
    for (int i = 0; i < EXECUTABLES; i++) instantiate(&executables[i], &executables[i], 0);
    cost("cudaGraphLaunch", graph, number);
    cost("ncclAllReduce", reduce, number);
    cost("group", group, number);
    cost("cudaEventRecord", record, number);
    cost("cudaStreamWaitEvent", wait_for, number);
    printf("lost %d %d\n", count("dropped"), count("untimed"));
    printf("timed %d\n", count("timed") - shown);
    return 0;
}
