// Calls while a thread ends: in the destructor of a key, and in that of a thread_local. Some threads have
// made calls before, others have not. Exit code 0.
#include "calls.h"
#include <atomic>
#include <cstdio>
#include <pthread.h>
#include <thread>

namespace {
std::atomic<int> calls, failed;
pthread_key_t key;

void call() {
    calls++;
    failed += use_everything() != 0;
}

struct CallsAtItsEnd {
    int used = 0;
    ~CallsAtItsEnd() { call(); }
};

thread_local CallsAtItsEnd local;

void on_key(void *rounds) {
    call();
    if (rounds != &key) pthread_setspecific(key, &key);
}
}  // namespace

int main() {
    pthread_key_create(&key, on_key);
    for (int i = 0; i < 40; i++) {
        std::thread thread([i] {
            local.used = i;
            pthread_setspecific(key, &failed);
            if (i % 2) call();
        });
        thread.join();
    }
    std::printf("%d calls, %d failed\n", calls.load(), failed.load());
    return 0;
}
