/* A program linked against two libraries that use CUDA, each with its own runtime. Exit code 0. */
#include <pthread.h>
#include <stdio.h>

int user12_run(char *text, size_t bytes);
int user13_run(char *text, size_t bytes);

static void *run(void *which) {
    char text[128];
    int (*user)(char *, size_t) = which ? user12_run : user13_run;
    user(text, sizeof text);
    printf("%s: %s\n", which ? "12" : "13", text);
    return NULL;
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    static int twelve;
    for (int i = 0; i < 6; i++) {
        pthread_t thread;
        run(i % 2 ? &twelve : NULL);
        if (pthread_create(&thread, NULL, run, i % 2 ? NULL : &twelve) != 0) return 1;
        pthread_join(thread, NULL);
    }
    return 0;
}
