/* What the program finds in /proc after it used the GPU: threads, descriptors, shared memory, handlers,
 * priority. For a disabled hook. Exit code 0. */
#define _DEFAULT_SOURCE
#include "calls.h"
#include <dirent.h>
#include <string.h>
#include <unistd.h>

static int entries(const char *path) {
    int count = 0;
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));) count += entry->d_name[0] != '.';
    if (folder) closedir(folder);
    return count;
}

static void show_lines(const char *path, const char *const *wanted, int starts) {
    char line[512];
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        for (int i = 0; wanted[i]; i++)
            if (starts ? strncmp(line, wanted[i], strlen(wanted[i])) == 0 : strstr(line, wanted[i]) != NULL)
                printf("%s: %s", path, starts ? line : "a mapping\n");
    if (file) fclose(file);
}

int main(void) {
    static const char *const of_status[] = {"Threads", "SigBlk", "SigIgn", "SigCgt", "Seccomp:", NULL};
    /* Of the hook, only the library itself may be mapped. */
    static const char *const of_maps[] = {"memfd:", "/dev/shm", "(deleted)", "ledger", NULL};
    for (int i = 0; i < 2; i++) {
        CHECK(use_everything());
        printf("tasks %d, descriptors %d\n", entries("/proc/self/task"), entries("/proc/self/fd"));
        show_lines("/proc/self/status", of_status, 1);
        show_lines("/proc/self/maps", of_maps, 0);
        usleep(200 * 1000);
    }
    return 0;
}
