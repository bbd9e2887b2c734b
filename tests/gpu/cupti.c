/* A client of CUPTI that does what the hook does, without the hook, to test whether CUPTI survives it.
 *
 * Flags: nokernel, nocopy, noset (not that kind), reverse (the other order), nested (copies first on and last
 * off), gap (20 ms between them), copystay and stay (never off), sub (subscribes for a moment), force
 * (flushes unfinished records), wait (200 ms before the flush), noflush, period (CUPTI flushes by itself),
 * shared (one buffer for all threads), norefuse (gives CUPTI as many buffers as it asks for). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SIZE = 256 << 10, MOST = 32, COPY = 1, SET = 2, KERNEL = 10, PER_THREAD = 9 };
static int has(const char *flag);
static uint8_t *all[4096];
static int held, made;

static void *library(void) {
    static void *handle;
    if (!handle) handle = dlopen("libcupti.so.13", RTLD_LAZY);
    if (!handle) handle = dlopen("libcupti.so.12", RTLD_LAZY);
    return handle;
}
#define FIND(type, name) ((type)dlsym(library(), name))

static void requested(uint8_t **buffer, size_t *size, size_t *most) {
    *most = 0;
    if (__atomic_add_fetch(&held, 1, __ATOMIC_ACQ_REL) > MOST && !has("norefuse")) {
        __atomic_sub_fetch(&held, 1, __ATOMIC_ACQ_REL);
        *buffer = 0;
        *size = 0;
        return;
    }
    *buffer = mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    all[__atomic_fetch_add(&made, 1, __ATOMIC_ACQ_REL) % 4096] = *buffer;
    *size = SIZE;
}
static void completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
    (void)context, (void)stream, (void)buffer, (void)size, (void)valid;
    __atomic_sub_fetch(&held, 1, __ATOMIC_ACQ_REL);
}
static void nothing(void *a, int b, uint32_t c, const void *d) { (void)a, (void)b, (void)c, (void)d; }


static char flags[256];
static int has(const char *flag) { return strstr(flags, flag) != 0; }
void client_flags(const char *given) {
    snprintf(flags, sizeof flags, "%s", given);
    if (has("shared")) {
        uint8_t no = 0;
        size_t size = 1;
        int rc = FIND(int (*)(int, size_t *, void *), "cuptiActivitySetAttribute")(PER_THREAD, &size, &no);
        fprintf(stderr, "shared buffers: %d\n", rc);
    }
    if (has("period")) fprintf(stderr, "period: %d\n", FIND(int (*)(uint32_t), "cuptiActivityFlushPeriod")(20));
}
static int kinds[3], count;
static void choose(void) {
    count = 0;
    if (has("reverse")) {
        kinds[count++] = SET, kinds[count++] = COPY, kinds[count++] = KERNEL;
        return;
    }
    if (!has("nokernel")) kinds[count++] = KERNEL;
    if (!has("nocopy")) kinds[count++] = COPY;
    if (!has("noset")) kinds[count++] = SET;
}
static int activity(const char *name, int kind) { return FIND(int (*)(int), name)(kind); }
int client_begin(void) {
    void *subscriber;
    choose();
    if (has("sub") && FIND(int (*)(void **, void *, void *), "cuptiSubscribe")(&subscriber, nothing, 0) == 0)
        FIND(int (*)(void *), "cuptiUnsubscribe")(subscriber);
    FIND(int (*)(void *, void *), "cuptiActivityRegisterCallbacks")(requested, completed);
    int wrong = 0;
    if (has("nested")) {
        wrong |= activity("cuptiActivityEnable", COPY);
        wrong |= activity("cuptiActivityEnable", SET);
        if (has("gap")) usleep(20000);
        return wrong | activity("cuptiActivityEnable", KERNEL);
    }
    for (int i = 0; i < count; i++) wrong |= activity("cuptiActivityEnable", kinds[i]);
    return wrong;
}
int client_end(void) {
    if (has("nested")) {
        activity("cuptiActivityDisable", KERNEL);
        if (has("drain")) FIND(int (*)(uint32_t), "cuptiActivityFlushAll")(0);
        if (has("gap")) usleep(20000);
        activity("cuptiActivityDisable", SET);
        activity("cuptiActivityDisable", COPY);
    } else if (!has("stay"))
        for (int i = 0; i < count; i++) {
            if (has("copystay") && kinds[i] != KERNEL) continue;
            activity("cuptiActivityDisable", kinds[i]);
            if (has("gap")) usleep(20000);
        }
    if (has("noflush")) return 0;
    FIND(int (*)(uint32_t), "cuptiActivityFlushAll")(0);
    if (has("wait")) usleep(200000);
    return FIND(int (*)(uint32_t), "cuptiActivityFlushAll")(has("force"));
}
