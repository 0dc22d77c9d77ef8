// What a compiled kernel calls in the runtime. Every function carries the source line of
// its caller, so that a report can say who waits where without reading debug information.
#ifndef KWEMU_ABI_H
#define KWEMU_ABI_H

#include "operations.h"

// The caller's line as a default argument: right even where the optimiser merges or
// duplicates calls, which a return address is not.
#define KWEMU_LINE int line = __builtin_LINE()

// A value that stays the same for the whole life of a CUDA thread: the compiler may ask
// once and keep the answer, also across barriers.
#define KWEMU_CONSTANT noexcept __attribute__((const))

// The runtime's own names are hidden; these are what a module and Python see.
#pragma GCC visibility push(default)
extern "C" {

unsigned kwemu_thread_x() KWEMU_CONSTANT;
unsigned kwemu_thread_y() KWEMU_CONSTANT;
unsigned kwemu_thread_z() KWEMU_CONSTANT;
unsigned kwemu_block_x() KWEMU_CONSTANT;
unsigned kwemu_block_y() KWEMU_CONSTANT;
unsigned kwemu_block_z() KWEMU_CONSTANT;
unsigned kwemu_block_dim_x() KWEMU_CONSTANT;
unsigned kwemu_block_dim_y() KWEMU_CONSTANT;
unsigned kwemu_block_dim_z() KWEMU_CONSTANT;
unsigned kwemu_grid_dim_x() KWEMU_CONSTANT;
unsigned kwemu_grid_dim_y() KWEMU_CONSTANT;
unsigned kwemu_grid_dim_z() KWEMU_CONSTANT;
unsigned kwemu_lane() KWEMU_CONSTANT;

void* kwemu_dynamic_shared() KWEMU_CONSTANT;
unsigned kwemu_dynamic_shared_size() KWEMU_CONSTANT;

// Barriers of the whole block; the last returns how many, whether all, whether any.
void kwemu_barrier(int line);
int kwemu_barrier_count(int predicate, int line);

// A meeting of the lanes of `mask`: each brings a pointer to its own record, and the last
// to arrive runs `combine` over all of them. `present` are the lanes that came; a lane
// that has exited is not among them and its pointer must not be read.
typedef void (*kwemu_combine)(void** lanes, unsigned present);
void kwemu_meet(unsigned mask, int operation, void* own, kwemu_combine combine,
                int line);

unsigned long long kwemu_shuffle(unsigned mask, unsigned long long value,
                                 unsigned source, int line);
unsigned kwemu_ballot(unsigned mask, int predicate, int line);
unsigned kwemu_match(unsigned mask, unsigned long long value, int all, int line);
unsigned kwemu_activemask(int line);

// Let another thread of the block run: called where a thread is seen to spin.
void kwemu_yield();

// Asynchronous copies: `size` bytes, of which `valid` come from `source` and the rest are
// zeros. Nothing reaches the destination before the wait for the copy's group.
void kwemu_copy_async(void* to, const void* from, unsigned size, unsigned valid,
                      int line);
void kwemu_copy_commit();
void kwemu_copy_wait(unsigned newest_still_open);

unsigned long long kwemu_clock();
unsigned long long kwemu_nanoseconds();
void kwemu_sleep(unsigned nanoseconds);
int kwemu_printf(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Arithmetic by number (add, sub, mul, div, fma, sqrt) and mode (nearest, down, up, zero).
float kwemu_round_float(int operation, int mode, float a, float b, float c);
double kwemu_round_double(int operation, int mode, double a, double b, double c);

// Only in the traced build.
// An access that is not a plain load or store; `operation` is AccessOp in
// runtime/trace.h, `line` the author's where the caller knows it, or 0. An atomic that is
// one for its own block's threads only says so with KWEMU_BLOCK_SCOPE, and one for all
// ranks' with KWEMU_SYSTEM_SCOPE.
#define KWEMU_BLOCK_SCOPE 256
#define KWEMU_SYSTEM_SCOPE 512
void kwemu_note(const void* address, unsigned width, unsigned operation, int line);
// A fence that reaches all ranks.
void kwemu_system_fence();

[[noreturn]] void kwemu_assert_failed(const char* expression, int line);
[[noreturn]] void kwemu_trap(int line);
[[noreturn]] void kwemu_misuse(const char* what, int line);

}  // extern "C"
#pragma GCC visibility pop

#endif  // KWEMU_ABI_H
