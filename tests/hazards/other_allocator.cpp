// A program linked with another allocator (jemalloc, tcmalloc). Its threads allocate, use the GPU and end.
// Exit code 0.
#include "calls.h"
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

int main() {
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; i++)
        threads.emplace_back([i] {
            std::map<int, std::unique_ptr<std::string>> kept;
            for (int n = 0; n < 100; n++) {
                kept[n] = std::make_unique<std::string>(1000 * (i + 1), 'x');
                if (n % 3 == 0) kept.erase(n / 2);
                CHECK(use_everything());
            }
        });
    for (auto &thread : threads) thread.join();
    usleep(200 * 1000);
    CHECK(use_everything());
    std::printf("done\n");
    return 0;
}
