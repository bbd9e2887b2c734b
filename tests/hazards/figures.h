/* Writes figures that the test compares: lines "NAME NUMBER" in the file that HAZARD_FIGURES names. A larger
 * number is worse. */
#ifndef FIGURES_H
#define FIGURES_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline void figure(const char *name, long number) {
    const char *path = getenv("HAZARD_FIGURES");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (!file) return;
    fprintf(file, "%s %ld\n", name, number);
    fclose(file);
}

/* The number in a line of /proc/self/status, in the unit of that line. */
static inline long of_status(const char *name) {
    char line[256];
    long number = -1;
    FILE *status = fopen("/proc/self/status", "r");
    if (!status) return -1;
    while (fgets(line, sizeof line, status))
        if (strncmp(line, name, strlen(name)) == 0 && line[strlen(name)] == ':') number = atol(line + strlen(name) + 1);
    fclose(status);
    return number;
}

#endif
