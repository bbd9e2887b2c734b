// The program's own allocation functions put a canary in front of each block. A block from another allocator,
// or one freed by the wrong function, ends the program. Exit code 0.
#include "calls.h"
#include <cstddef>
#include <cstdint>
#include <new>
#include <string>
#include <unistd.h>
#include <vector>

namespace {
constexpr std::uint64_t CANARY = 0x5ca1ab1e0ddba11;

struct Block {
    std::uint64_t canary;
    void *whole;
};

void *make(std::size_t bytes, std::size_t alignment) {
    auto whole = static_cast<char *>(std::malloc(bytes + alignment + sizeof(Block)));
    if (!whole) std::abort();
    auto at = (reinterpret_cast<std::uintptr_t>(whole) + sizeof(Block) + alignment - 1) / alignment * alignment;
    *(reinterpret_cast<Block *>(at) - 1) = {CANARY, whole};
    return reinterpret_cast<void *>(at);
}

void unmake(void *memory) {
    if (!memory) return;
    auto block = static_cast<Block *>(memory) - 1;
    if (block->canary != CANARY) {
        static const char said[] = "a block that is not the program's was freed by its operator delete\n";
        if (write(1, said, sizeof said - 1) < 0) _exit(99);
        std::abort();
    }
    block->canary = 0;
    std::free(block->whole);
}
}  // namespace

void *operator new(std::size_t bytes) { return make(bytes, alignof(std::max_align_t)); }
void *operator new[](std::size_t bytes) { return make(bytes, alignof(std::max_align_t)); }
void *operator new(std::size_t bytes, const std::nothrow_t &) noexcept { return make(bytes, alignof(std::max_align_t)); }
void *operator new[](std::size_t bytes, const std::nothrow_t &) noexcept { return make(bytes, alignof(std::max_align_t)); }
void *operator new(std::size_t bytes, std::align_val_t to) { return make(bytes, static_cast<std::size_t>(to)); }
void operator delete(void *memory) noexcept { unmake(memory); }
void operator delete[](void *memory) noexcept { unmake(memory); }
void operator delete(void *memory, std::size_t) noexcept { unmake(memory); }
void operator delete[](void *memory, std::size_t) noexcept { unmake(memory); }
void operator delete(void *memory, std::align_val_t) noexcept { unmake(memory); }
void operator delete(void *memory, std::size_t, std::align_val_t) noexcept { unmake(memory); }

int main() {
    std::vector<std::string> kept;
    for (int i = 0; i < 200; i++) {
        kept.push_back(std::string(100 + i, 'x'));
        CHECK(use_everything());
        if (i % 20 == 0) usleep(10 * 1000);
    }
    std::printf("%zu strings\n", kept.size());
    return 0;
}
