// A callback of a launch or a wait throws an exception through the call that called it back. All exceptions
// are caught, and every object is destroyed. Exit code 0.
#include "calls.h"
#include <stdexcept>
#include <string>

namespace {
int alive;

struct Counted {
    Counted() { alive++; }
    ~Counted() { alive--; }
};

void throws(void *what) {
    Counted one;
    throw std::runtime_error(static_cast<const char *>(what));
}

void throws_number(void *) { throw 42; }

// Caught where it is thrown, so nothing passes through the call.
void catches(void *) {
    try {
        throw std::logic_error("inside");
    } catch (const std::exception &) {
        Counted one;
    }
}

template <typename Call> std::string caught(Call call) {
    Counted one;
    try {
        Counted two;
        return "code " + std::to_string(call());
    } catch (const std::exception &error) {
        return std::string("caught ") + error.what();
    } catch (int number) {
        return "caught " + std::to_string(number);
    }
}
}  // namespace

int main() {
    static char first[] = "first", launched[] = "launch", waited[] = "wait";
    std::printf("%s\n", caught([] { return launch_with(throws, first); }).c_str());
    for (int i = 0; i < 3; i++) {
        std::printf("%s\n", caught([] { return launch_with(throws, launched); }).c_str());
        std::printf("%s\n", caught([] { return launch_with(throws_number, nullptr); }).c_str());
        std::printf("%s\n", caught([] { return launch_with(catches, nullptr); }).c_str());
        CHECK(cudaLaunchHostFunc(nullptr, throws, waited));
        std::printf("%s\n", caught([] { return cudaDeviceSynchronize(); }).c_str());
        CHECK(cudaLaunchHostFunc(nullptr, throws, waited));
        std::printf("%s\n", caught([] { return cudaStreamSynchronize(nullptr); }).c_str());
        CHECK(use_everything());
    }
    std::printf("%d alive\n", alive);
    return 0;
}
