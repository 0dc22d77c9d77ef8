// One block on one worker: which of its threads runs next.
//
// Warp first: while a lane of the current warp can run, it does; the fiber that has to
// wait switches straight to the next one, with no scheduler in between.
#include <sys/mman.h>

#include <cstdio>
#include <cstring>

#include "state.h"
#include "trace.h"

namespace kwemu {

__thread Worker* self = nullptr;

namespace {

unsigned lanes_of(const Worker& worker, unsigned warp) {
    unsigned first = warp * 32;
    unsigned count = worker.threads - first;
    return count >= 32 ? ~0u : (1u << count) - 1;
}

// A few cache lines of offset between neighbours: stacks that start at equal offsets in
// their pages would all fight for the same sets of the first-level cache.
size_t stagger(unsigned stack) {
    return (stack % 11) * 320;
}

}  // namespace

bool Worker::in_text(uint64_t pc) const {
    return pc >= launch->spec.text_begin && pc < launch->spec.text_end;
}

bool Worker::is_guard(uint64_t address) const {
    for (char* stack : stacks) {
        uint64_t low = reinterpret_cast<uint64_t>(stack);
        if (address >= low && address < low + kPage) return true;
    }
    return false;
}

void Worker::ensure_stacks(unsigned count) {
    if (dynamic_shared == nullptr) {
        void* place = mmap(nullptr, kDynamicShared + kPage, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (place != MAP_FAILED) dynamic_shared = static_cast<char*>(place);
    }
    while (stacks.size() < count) {
        unsigned more = stacks.size() < 64 ? 64 : static_cast<unsigned>(stacks.size());
        void* chunk = mmap(nullptr, more * kStackBytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (chunk == MAP_FAILED) return;
        for (unsigned i = 0; i < more; ++i) {
            char* stack = static_cast<char*>(chunk) + i * kStackBytes;
            mprotect(stack, kPage, PROT_NONE);
            stacks.push_back(stack);
        }
    }
    free_stacks.reserve(stacks.size());
}

unsigned Worker::take_stack(unsigned thread) {
    unsigned stack = free_stacks.back();
    free_stacks.pop_back();
    stack_of[thread] = static_cast<uint16_t>(stack);
    char* top = stacks[stack] + kStackBytes - 64 - stagger(stack);
    // Six callee's registers and the address to continue at; the pointer is then 16-byte
    // aligned where kwemu_fiber_start begins, as its call to a function wants it.
    void** frame = reinterpret_cast<void**>(top) - 7;
    memset(frame, 0, 6 * sizeof(void*));
    frame[6] = reinterpret_cast<void*>(&kwemu_fiber_start);
    sp[thread] = frame;
    return stack;
}

void Worker::make_ready(unsigned warp, unsigned lanes) {
    ready[warp] |= lanes;
    if (ready[warp]) warps_ready |= 1u << warp;
}

// The current thread can no longer run.
void Worker::leave_current() {
    unsigned warp = current >> 5;
    ready[warp] &= ~(1u << (current & 31));
    if (!ready[warp]) warps_ready &= ~(1u << warp);
}

unsigned Worker::pick() {
    unsigned warp = current >> 5;
    if (!ready[warp] && warps[warp].parked) resolve_parked(warp);
    if (ready[warp]) return warp * 32 + __builtin_ctz(ready[warp]);
    if (!warps_ready) return kNobody;
    unsigned later = warps_ready & ~((2u << warp) - 1);
    warp = __builtin_ctz(later ? later : warps_ready);
    return warp * 32 + __builtin_ctz(ready[warp]);
}

void Worker::switch_to(unsigned next) {
    unsigned from = current;
    current = next;
    ++switches;
    if (sp[next] == nullptr) take_stack(next);
    kwemu_switch(&sp[from], sp[next]);
}

// The current thread waits: somebody else's turn, or the end of the block.
void Worker::block_current() {
    leave_current();
    unsigned next = pick();
    if (next == kNobody) give_up(kDeadlock);
    if (next != current) switch_to(next);
}

// The current thread can run on, but lets every other ready thread run before it.
void Worker::yield() {
    unsigned warp = current >> 5;
    unsigned lane = current & 31;
    unsigned later_lanes = ready[warp] & ~((2u << lane) - 1);
    unsigned next;
    if (later_lanes) {
        next = warp * 32 + __builtin_ctz(later_lanes);
    } else {
        unsigned later = warps_ready & ~((2u << warp) - 1);
        unsigned other = __builtin_ctz(later ? later : warps_ready);
        next = other * 32 + __builtin_ctz(ready[other]);
    }
    if (next != current) switch_to(next);
}

void Worker::release_barrier() {
    unsigned count = (threads + 31) / 32;
    if (tracer) tracer->barrier();
    if (exited != 0) {
        int nobody = 0;
        launch->early_exit_line.compare_exchange_strong(nobody, barrier_line);
    }
    for (unsigned warp = 0; warp < count; ++warp) {
        make_ready(warp, warps[warp].at_barrier);
        warps[warp].at_barrier = 0;
    }
    barrier_result = barrier_sum;
    barrier_sum = 0;
    arrived = 0;
}

void Worker::exit_current() {
    unsigned number = current >> 5;
    unsigned bit = 1u << (current & 31);
    Warp& warp = warps[number];
    leave_current();
    warp.exited |= bit;
    ++exited;
    // Those who wait for this thread wait no longer: it counts as arrived.
    if (arrived != 0 && arrived + exited == threads) release_barrier();
    for (unsigned i = 0; i < warp.meetings_used; ++i) {
        Meeting& meeting = warp.meetings[i];
        if (meeting.arrived && (meeting.mask & ~warp.exited) == meeting.arrived)
            finish_meeting(warp, number, meeting);
    }
}

void Worker::give_up(Kind kind) {
    end = kind;
    kwemu_jump(scheduler_sp);
}

bool Worker::claim_outcome(Kind kind, unsigned thread) {
    if (launch->failed.exchange(true)) return false;
    Outcome& outcome = launch->outcome;
    outcome.kind = kind;
    outcome.rank = launch->spec.ranks > 1 ? rank + 1 : 0;
    uint64_t begun = launch->next_block.load();
    outcome.unbegun = begun < launch->blocks ? launch->blocks - begun : 0;
    for (int i = 0; i < 3; ++i) {
        outcome.block[i] = block[i];
        outcome.thread[i] = index[thread][i];
    }
    int running = kFine;
    launch->abandon.compare_exchange_strong(running, kAbandoned);
    return true;
}

void Worker::fail(Kind kind, int line, int other_line, unsigned mask,
                  const char* text) {
    if (claim_outcome(kind, current)) {
        Outcome& outcome = launch->outcome;
        outcome.line = line;
        outcome.other_line = other_line;
        outcome.mask = mask;
        snprintf(outcome.text, sizeof outcome.text, "%s", text);
        describe_waiters();
    }
    give_up(kind);
}

// Groups the waiting threads by what they wait in, for a report of the first few groups.
void Worker::describe_waiters() {
    Outcome& outcome = launch->outcome;
    unsigned used = 0;
    for (unsigned thread = 0; thread < threads; ++thread) {
        unsigned number = thread >> 5, bit = 1u << (thread & 31);
        if ((warps[number].exited | ready[number]) & bit) continue;
        const Wait& own = wait[thread];
        unsigned i = 0;
        while (i < used && !(outcome.waiters[i].operation == own.operation &&
                             outcome.waiters[i].line == own.line &&
                             outcome.waiters[i].mask == own.mask))
            ++i;
        if (i == kMaxWaiters) continue;
        Waiter& waiter = outcome.waiters[i];
        if (i == used) {
            ++used;
            waiter.operation = own.operation;
            waiter.line = own.line;
            waiter.mask = own.mask;
            waiter.count = 0;
            for (int axis = 0; axis < 3; ++axis)
                waiter.thread[axis] = index[thread][axis];
        }
        ++waiter.count;
    }
    outcome.waiter_count = used;
}

void Worker::begin_block() {
    const Spec& spec = launch->spec;
    threads = spec.block[0] * spec.block[1] * spec.block[2];
    unsigned warp_count = (threads + 31) / 32;
    if (memcmp(index_shape, spec.block, sizeof index_shape) != 0) {
        memcpy(index_shape, spec.block, sizeof index_shape);
        unsigned thread = 0;
        for (unsigned z = 0; z < spec.block[2]; ++z)
            for (unsigned y = 0; y < spec.block[1]; ++y)
                for (unsigned x = 0; x < spec.block[0]; ++x, ++thread) {
                    index[thread][0] = static_cast<uint16_t>(x);
                    index[thread][1] = static_cast<uint16_t>(y);
                    index[thread][2] = static_cast<uint16_t>(z);
                }
    }
    warps_ready = 0;
    for (unsigned warp = 0; warp < warp_count; ++warp) {
        Warp& state = warps[warp];
        ready[warp] = lanes_of(*this, warp);
        warps_ready |= 1u << warp;
        state.exited = ~ready[warp];  // lanes that the block does not have never come
        state.at_barrier = state.parked = 0;
        for (unsigned i = 0; i < state.meetings_used; ++i)
            state.meetings[i].arrived = 0;
        state.meetings_used = 0;
    }
    memset(sp, 0, threads * sizeof sp[0]);
    free_stacks.clear();
    for (unsigned i = static_cast<unsigned>(stacks.size()); i-- > 0;)
        free_stacks.push_back(static_cast<uint16_t>(i));
    exited = arrived = 0;
    barrier_sum = 0;
    for (unsigned i = 0; i < copies_in_use; ++i) {
        copies[i].pending.clear();
        copies[i].open_group = 0;
    }
    copies_in_use = 0;
    memset(under_way, 0, sizeof under_way);
    end = kFine;
}

}  // namespace kwemu

// The life of a fiber. A thread that ends hands its warm stack to the next one that has
// not started: a kernel without barriers runs whole blocks on a single stack.
extern "C" void kwemu_fiber_main() {
    using namespace kwemu;
    Worker* worker = self;
    for (;;) {
        worker->launch->spec.thunk(worker->arguments);
        unsigned stack = worker->stack_of[worker->current];
        worker->exit_current();
        unsigned next = worker->pick();
        if (next == kNobody) {
            worker->give_up(worker->exited == worker->threads ? kFine : kDeadlock);
        }
        worker->current = next;
        ++worker->switches;
        if (worker->sp[next] == nullptr) {
            worker->stack_of[next] = static_cast<uint16_t>(stack);
            worker->sp[next] =
                &worker->sp[next];  // started; set in earnest by a switch
            continue;
        }
        // This stack stays in use until the jump; nobody else can take it before.
        worker->free_stacks.push_back(static_cast<uint16_t>(stack));
        kwemu_jump(worker->sp[next]);
    }
}
