// The runtime's state: a launch, the workers that run its blocks, the threads of a block.
//
// A worker is an operating-system thread that runs one block at a time. Each CUDA thread
// of the block that has started and not ended is a fiber: a stack and a saved stack
// pointer. Nothing here is shared between workers but the launch and the pool.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kwemu/abi.h"

namespace kwemu {

constexpr unsigned kMaxThreads = 1024;
constexpr unsigned kMaxWarps = kMaxThreads / 32;
constexpr unsigned kNobody = ~0u;
constexpr size_t kStackBytes = 128 * 1024;
constexpr size_t kPage = 4096;
constexpr size_t kDynamicShared = 227 * 1024;
constexpr size_t kPrintCap = 1 << 20;
constexpr unsigned kMaxWaiters = 24;

enum Kind : int32_t {
    kFine = 0,
    kSignal = 1,  // a fault that the processor reported
    kAssert = 2,
    kTrap = 3,
    kBarrier = 4,   // the block's threads meet at different barriers
    kSyncMask = 5,  // a warp operation's mask or kind does not fit its callers
    kDeadlock = 6,
    kTimeout = 7,
    kAbandoned = 8,  // the caller gave up, or another block failed
    kMisuse = 9,     // a wrapper was given what the GPU's instruction does not take
};

// One line of "who waits where". Python knows this layout (launch.py).
struct Waiter {
    int32_t operation;
    int32_t line;
    uint32_t mask;
    uint32_t count;
    uint32_t thread[3];
};

// What became of a launch. Python knows this layout (launch.py).
struct Outcome {
    int32_t kind;
    int32_t signal;
    int32_t code;
    int32_t line;
    int32_t other_line;
    int32_t wrote;
    int32_t stack_overflow;
    uint32_t mask;
    uint64_t address;
    uint64_t pc;  // inside the kernel's own code, relative to its load address
    uint32_t block[3];
    uint32_t thread[3];
    uint32_t waiter_count;
    int32_t early_exit_line;  // a barrier at which threads were missing, having exited
    Waiter waiters[kMaxWaiters];
    char text[256];
    uint64_t printed_bytes;
    const char* printed;
    int32_t print_cut;
    uint32_t rank;     // from 1; 0 where there is one
    uint64_t unbegun;  // blocks that no worker had taken up
};

// What Python asks for. Python knows this layout (launch.py).
struct Spec {
    void (*thunk)(void**);
    void** arguments;
    uint32_t grid[3];
    uint32_t block[3];
    uint32_t shared_bytes;
    uint32_t poison;      // fill shared memory before each block
    uint64_t text_begin;  // the kernel's own machine code
    uint64_t text_end;
    uint64_t load_address;
    uint64_t tls_module;  // its __shared__ variables
    uint64_t tls_bytes;
    double deadline_s;  // 0: none
    void* trace;        // a Trace, or null
    // Each rank has its own grid, and its own arguments one after the other's.
    uint32_t ranks;
    uint32_t argument_count;

    uint64_t blocks_of_rank() const {
        return static_cast<uint64_t>(grid[0]) * grid[1] * grid[2];
    }
};

struct Launch {
    Spec spec;
    Outcome outcome{};
    uint64_t blocks = 0;
    std::atomic<uint64_t> next_block{0};
    std::atomic<int> abandon{kFine};
    std::atomic<bool> failed{false};
    std::atomic<int> early_exit_line{0};
    unsigned workers = 0;  // guarded by the pool's mutex, as the rest
    unsigned most_workers = 0;
    bool queued = true;
    double started = 0;
    std::atomic_flag print_lock = ATOMIC_FLAG_INIT;
    std::string printed;
    bool print_cut = false;
};

struct Meeting {
    unsigned mask;
    unsigned arrived;  // 0: this slot is free
    int operation;
    int line;
    kwemu_combine combine;
    void* lanes[32];
};

struct Warp {
    unsigned exited;
    unsigned at_barrier;
    unsigned parked;  // in __activemask, until no other lane can run
    unsigned meetings_used;
    // A shuffle's values: a lane is in one meeting at a time, so one place each will do.
    unsigned char source[32];
    unsigned long long value[32];
    Meeting meetings[32];
};

// What a thread waits in, for a report.
struct Wait {
    int operation;
    int line;
    unsigned mask;
};

struct Copy {
    void* to;
    unsigned size;
    unsigned group;
    unsigned char bytes[16];
};

struct Copies {
    std::vector<Copy> pending;
    unsigned open_group = 0;  // the group that the next commit closes
};

struct Worker {
    // What every switch touches comes first.
    unsigned current = 0;
    unsigned warps_ready = 0;
    uint64_t switches = 0;
    Launch* launch = nullptr;
    void* scheduler_sp = nullptr;
    unsigned threads = 0;
    unsigned exited = 0;
    unsigned arrived = 0;
    int barrier_line = 0;
    int barrier_sum = 0;
    int barrier_result = 0;
    volatile bool in_fibers = false;
    volatile bool locked = false;  // preempting now would tear a meeting apart
    Kind end = kFine;
    unsigned block[3] = {};
    unsigned rank = 0;
    void** arguments = nullptr;
    unsigned ready[kMaxWarps] = {};
    void* sp[kMaxThreads] = {};  // null: not started
    uint16_t stack_of[kMaxThreads] = {};
    uint16_t index[kMaxThreads][4] = {};
    Wait wait[kMaxThreads] = {};
    unsigned active_mask[kMaxThreads] = {};
    Warp warps[kMaxWarps] = {};
    unsigned index_shape[3] = {};
    // Stacks: chunks of kStackBytes each, a guard page at the low end of every stack.
    std::vector<char*> stacks;
    std::vector<uint16_t> free_stacks;
    std::vector<Copies> copies;
    unsigned copies_in_use = 0;
    unsigned under_way[kMaxWarps] = {};  // bytes of a warp's copies that nobody awaited
    char* dynamic_shared = nullptr;
    struct Tracer* tracer = nullptr;  // while a traced launch runs
    pthread_t handle{};
    uint64_t seen_switches = 0;  // the watchdog's
    char* alternate_stack = nullptr;

    void run_launch(Launch* task);
    void run_block(uint64_t number);
    void begin_block();
    void ensure_stacks(unsigned count);
    unsigned take_stack(unsigned thread);
    unsigned pick();
    void make_ready(unsigned warp, unsigned lanes);
    void leave_current();
    void block_current();
    void switch_to(unsigned next);
    void exit_current();
    void yield();
    void release_barrier();
    void finish_meeting(Warp& warp, unsigned warp_number, Meeting& meeting);
    void resolve_parked(unsigned warp);
    bool in_text(uint64_t pc) const;
    bool is_guard(uint64_t address) const;
    bool claim_outcome(Kind kind, unsigned thread);
    void describe_waiters();
    [[noreturn]] void give_up(Kind kind);
    [[noreturn]] void fail(Kind kind, int line, int other_line = 0, unsigned mask = 0,
                           const char* text = "");
};

// The worker of this operating-system thread. Compiled with -ftls-model=initial-exec: a
// signal handler and every switch read it, and must not run into a lazy allocation.
extern __thread Worker* self;

double now();
void install_handlers();
void serve_worker_signals(Worker* worker);

constexpr int kPreempt = SIGURG;

}  // namespace kwemu

extern "C" {
// Save the callee's registers on this stack, its pointer in *save, and continue `load`.
void kwemu_switch(void** save, void* load);
// The same without saving: the way out of a fiber that is done or given up.
[[noreturn]] void kwemu_jump(void* load);
// Where a preempted fiber continues: keeps every register, lets others run, returns.
void kwemu_preempted();
void kwemu_fiber_start();
[[noreturn]] void kwemu_fiber_main();
}
