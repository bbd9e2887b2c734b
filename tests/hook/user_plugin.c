/* The program's own profiler plugin. Writes each callback as a line to the file in USER_PLUGIN_LOG. Versions
 * 4 and 5 (-DVERSION=...) differ in the arguments of init and in the width of an event's type. The plugin
 * numbers its handles, and writes parents as these numbers. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef VERSION
#define VERSION 5
#endif
#define NAME_(version) ncclProfiler_v##version
#define NAME(version) NAME_(version)

static FILE *log_file;
static long handles, contexts;
static int *mask_place;

static void open_log(void) {
    const char *path = getenv("USER_PLUGIN_LOG");
    char own[4096];
    snprintf(own, sizeof own, "%s.%s", path ? path : "/dev/null", getenv("RANK") ? getenv("RANK") : "0");
    if (!log_file) log_file = fopen(own, "a");
    if (!log_file) abort();
    setvbuf(log_file, NULL, _IOLBF, 0);
}

static int begin(void **context, int *mask, int ranks, int rank) {
    const char *wanted = getenv("USER_PLUGIN_MASK");
    open_log();
    mask_place = mask;
    *mask = wanted ? atoi(wanted) : 0;
    *context = (void *)(0x1000 + ++contexts);
    fprintf(log_file, "init ranks %d rank %d\n", ranks, rank);
    return 0;
}

#if VERSION >= 5
static int init(void **context, uint64_t id, int *mask, const char *name, int nodes, int ranks, int rank, void *log) {
    (void)id, (void)name, (void)nodes, (void)log;
    return begin(context, mask, ranks, rank);
}
#else
static int init(void **context, int *mask, const char *name, uint64_t id, int nodes, int ranks, int rank, void *log) {
    (void)id, (void)name, (void)nodes, (void)log;
    return begin(context, mask, ranks, rank);
}
#endif

static int start(void *context, void **handle, void *event) {
    uint64_t type = VERSION >= 5 ? *(uint64_t *)event : *(uint8_t *)event;
    void *parent = *(void **)((char *)event + 8);
    *handle = (void *)(uintptr_t)(0x10000 + ++handles);
    const char *func = "";
    if (type == 512 || type == 1024) func = *(const char **)((char *)event + 24);
    if (type == 2) func = *(const char **)((char *)event + 32);
    fprintf(log_file, "start %p type %d parent %p %s -> %p\n", context, (int)type, parent, func, *handle);
    /* From now on the plugin asks for fewer events. */
    if (func[0] && getenv("USER_PLUGIN_STOPS_AT") && handles >= atoi(getenv("USER_PLUGIN_STOPS_AT"))) *mask_place = 0;
    return 0;
}

static int stop(void *handle) {
    fprintf(log_file, "stop %p\n", handle);
    return 0;
}

static int record(void *handle, int state, void *more) {
    fprintf(log_file, "record %p state %d %s\n", handle, state, more ? "more" : "alone");
    return 0;
}

static int finalize(void *context) {
    fprintf(log_file, "finalize %p\n", context);
    return 0;
}

struct plugin {
    const char *name;
    void *init, *start, *stop, *record, *finalize;
};

const struct plugin NAME(VERSION) = {"user", (void *)init, (void *)start, (void *)stop, (void *)record, (void *)finalize};
