/* The program counts its threads, as programs do that fork only while they have a single thread. The hook may
 * add at most one, with the hook's name, and none before the first CUDA call. Exit code 0. */
#define _DEFAULT_SOURCE
#include "calls.h"
#include "figures.h"
#include <dirent.h>
#include <unistd.h>

static void show(const char *when) {
    char path[300], name[32] = "";
    long others = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; tasks && (task = readdir(tasks));) {
        if (task->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", task->d_name);
        FILE *comm = fopen(path, "r");
        if (comm && fgets(name, sizeof name, comm) && atoi(task->d_name) != getpid() && strcmp(name, "xpu-top\n") != 0) others++;
        if (comm) fclose(comm);
    }
    if (tasks) closedir(tasks);
    printf("%s: %ld others\n", when, others);
    figure(when, of_status("Threads"));
}

int main(void) {
    show("at first");
    CHECK(use_everything());
    show("after a call");
    usleep(300 * 1000);
    CHECK(use_everything());
    show("later");
    return 0;
}
