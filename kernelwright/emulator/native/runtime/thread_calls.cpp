// The rest of what a CUDA thread calls: who it is, printf, assert, clocks.
#include <cstdarg>
#include <cstdio>
#include <ctime>

#include "state.h"

using namespace kwemu;

extern "C" {

unsigned kwemu_thread_x() noexcept {
    return self->index[self->current][0];
}
unsigned kwemu_thread_y() noexcept {
    return self->index[self->current][1];
}
unsigned kwemu_thread_z() noexcept {
    return self->index[self->current][2];
}
unsigned kwemu_block_x() noexcept {
    return self->block[0];
}
unsigned kwemu_block_y() noexcept {
    return self->block[1];
}
unsigned kwemu_block_z() noexcept {
    return self->block[2];
}
unsigned kwemu_block_dim_x() noexcept {
    return self->launch->spec.block[0];
}
unsigned kwemu_block_dim_y() noexcept {
    return self->launch->spec.block[1];
}
unsigned kwemu_block_dim_z() noexcept {
    return self->launch->spec.block[2];
}
unsigned kwemu_grid_dim_x() noexcept {
    return self->launch->spec.grid[0];
}
unsigned kwemu_grid_dim_y() noexcept {
    return self->launch->spec.grid[1];
}
unsigned kwemu_grid_dim_z() noexcept {
    return self->launch->spec.grid[2];
}
unsigned kwemu_lane() noexcept {
    return self->current & 31;
}
void* kwemu_dynamic_shared() noexcept {
    return self->dynamic_shared;
}
unsigned kwemu_dynamic_shared_size() noexcept {
    return self->launch->spec.shared_bytes;
}

unsigned long long kwemu_clock() {
    return __builtin_ia32_rdtsc();
}

unsigned long long kwemu_nanoseconds() {
    timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return static_cast<unsigned long long>(time.tv_sec) * 1000000000ull +
           static_cast<unsigned long long>(time.tv_nsec);
}

void kwemu_sleep(unsigned) {
    self->yield();
}

int kwemu_printf(const char* format, ...) {
    // Formatted before the lock is taken: a bad %s may fault, and must not hold it then.
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (length < 0) return length;
    size_t size = static_cast<size_t>(length) < sizeof text
                      ? static_cast<size_t>(length)
                      : sizeof text - 1;
    Launch* launch = self->launch;
    while (launch->print_lock.test_and_set(std::memory_order_acquire)) {
    }
    if (launch->printed.size() + size <= kPrintCap) {
        launch->printed.append(text, size);
    } else {
        launch->print_cut = true;
    }
    launch->print_lock.clear(std::memory_order_release);
    if (launch->abandon.load(std::memory_order_relaxed)) {
        if (launch->abandon == kTimeout &&
            self->claim_outcome(kTimeout, self->current)) {
            uint64_t caller =
                reinterpret_cast<uint64_t>(__builtin_return_address(0)) - 1;
            if (self->in_text(caller))
                launch->outcome.pc = caller - launch->spec.load_address;
            self->describe_waiters();
        }
        self->give_up(kAbandoned);
    }
    return length;
}

void kwemu_assert_failed(const char* expression, int line) {
    self->fail(kAssert, line, 0, 0, expression);
}

void kwemu_trap(int line) {
    self->fail(kTrap, line);
}

void kwemu_misuse(const char* what, int line) {
    self->fail(kMisuse, line, 0, 0, what);
}

}  // extern "C"
