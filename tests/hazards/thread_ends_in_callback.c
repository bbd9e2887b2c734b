/* pthread_exit in a callback of a launch or a wait. The thread's cleanup handlers run, and it is joined with
 * its value. Exit code 0. */
#include "calls.h"
#include <pthread.h>

static pthread_key_t key;
static int put_away, destroyed;

static void put_it_away(void *unused) {
    (void)unused;
    put_away++;
}

static void destroy(void *unused) {
    (void)unused;
    destroyed++;
}

static void end_thread(void *value) { pthread_exit(value); }

static void *run(void *in_launch) {
    pthread_cleanup_push(put_it_away, NULL);
    pthread_setspecific(key, &put_away);
    if (in_launch) launch_with(end_thread, &put_away);
    CHECK(cudaLaunchHostFunc(NULL, end_thread, &put_away));
    cudaStreamSynchronize(NULL);
    pthread_cleanup_pop(0);
    return NULL;
}

int main(void) {
    pthread_key_create(&key, destroy);
    for (int i = 0; i < 6; i++) {
        pthread_t thread;
        void *answer = NULL;
        if (pthread_create(&thread, NULL, run, i % 2 ? &key : NULL) != 0) return 1;
        pthread_join(thread, &answer);
        printf("joined with its value: %s\n", answer == &put_away ? "yes" : "no");
        CHECK(use_everything());
    }
    printf("%d put away, %d destroyed\n", put_away, destroyed);
    return 0;
}
