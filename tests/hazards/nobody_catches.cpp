// A launch throws an exception that nobody catches. The program's terminate handler runs, and the process
// ends by SIGABRT.
#include "calls.h"
#include <exception>
#include <stdexcept>
#include <unistd.h>

int main() {
    CHECK(use_everything());
    std::set_terminate([] {
        static const char said[] = "nobody caught it\n";
        if (write(1, said, sizeof said - 1) < 0) _exit(99);
        std::abort();
    });
    return launch_with([](void *) { throw std::runtime_error("nobody does"); }, nullptr);
}
