// Where threads meet: what that orders, and who stayed away.
#include <algorithm>

#include "trace.h"

namespace kwemu {

namespace {

// Held while what a block published is read or added to.
struct Turn {
    std::atomic_flag& held;
    explicit Turn(Trace* trace) : held(trace->publishing) {
        while (held.test_and_set(std::memory_order_acquire)) {
        }
    }
    ~Turn() { held.clear(std::memory_order_release); }
};

}  // namespace

// Every thread of the block that has not returned is here.
void Tracer::barrier() {
    settle();
    ++operations[KWEMU_BARRIER];
    unsigned missing = kNobody, waiting = kNobody;
    for (unsigned warp = 0; warp * 32 < worker->threads; ++warp) {
        unsigned left = worker->threads - warp * 32;
        unsigned there = left >= 32 ? ~0u : (1u << left) - 1;
        unsigned gone = worker->warps[warp].exited & there;
        if (gone && missing == kNobody) missing = warp * 32 + __builtin_ctz(gone);
        if (there & ~gone) waiting = warp * 32 + __builtin_ctz(there & ~gone);
        flush(warp);
    }
    for (unsigned thread = 0; noticing_count && thread < worker->threads; ++thread)
        take_notice(thread);
    block_tick = ++tick;
    std::vector<uint32_t> seen_missing;
    seen_missing.swap(left_out);
    if (missing == kNobody || waiting == kNobody || wounded || early_exit) return;
    early_exit = true;
    missed = problem(kEarlyExit, 0, 0, 0, 0, kNowhere);
    missed.line = worker->barrier_line;
    missed.thread = missing;
    missed_sites.swap(seen_missing);
    waited_at = windows[waiting >> 5].lanes[waiting & 31].at;
    last_nodes.clear();
    for (unsigned warp = 0; warp * 32 < worker->threads; ++warp)
        for (unsigned rest = worker->warps[warp].exited; rest; rest &= rest - 1)
            last_node(windows[warp].lanes[__builtin_ctz(rest)]);
}

// Where a thread had been last. Ways often meet where the kernel ends, which says nothing.
void Tracer::last_node(const Lane& lane) {
    uint32_t node = lane.at != kNone && flow.ends(lane.at) ? lane.from : lane.at;
    if (node == kNone) return;
    if (std::find(last_nodes.begin(), last_nodes.end(), node) == last_nodes.end())
        last_nodes.push_back(node);
}

// Threads were missing at a barrier. If one had been where all come to behind it, it went
// past the barrier; else it took a way that ends before.
void Tracer::report_missed() {
    ProblemRow row = missed;
    row.kind = kDivergentBarrier;
    if (waited_at == kNone) return report(missed);
    for (uint32_t number : missed_sites) {
        if (!flow.lies_behind(sites[number].node, waited_at)) continue;
        row.other_pc = sites[number].row.pc;
        return report(row);
    }
    for (uint32_t node : last_nodes)
        if (flow.lies_behind(node, waited_at)) return report(row);
    report(missed);
}

// A fence and then an atomic publish what was done before the fence; another thread's
// atomic after that has it. (More forgiving than the standard: the atomics may be on any
// address, and a fence counts for all threads of its block.) Other blocks have it only if
// both, fence and atomic, reach further than the block; other ranks only once a fence that
// reaches them stands behind their atomic, too.
void Tracer::fence(Scope reach) {
    if (noticing_count) take_notice(worker->current);
    if (reach == kSystemScope) system_acquired = system_looked;
    if (fenced.empty()) {
        fenced.assign(kMaxThreads, kNoScope);
        acquired.assign(kMaxThreads, 0);
        released.assign(kMaxThreads, {});
        warp_released.assign(kMaxWarps, {});
    }
    Scope& mine = fenced[worker->current];
    mine = std::max(mine, reach);
    any_fence = tick;
    if (reach >= kDeviceScope) device_fence = tick;
    if (reach == kSystemScope) system_fence = tick;
    ++tick;  // what comes later is not behind this fence
}

// It is about to be done. What it publishes counts from here on; what it takes notice of
// is known when it is done. In between, on another processor, an atomic that comes later
// here may come first there: the one that reads the other's sign would be the older one.
void Tracer::atomic_seen(Scope reach) {
    uint64_t now = trace->next_order.fetch_add(1);
    acquire(reach, now);
    unsigned me = worker->current;
    noticing_count += noticing[me] == kNoScope;
    noticing[me] = reach;
    if (fenced.empty()) return;
    acquired[me] = now;
    if (fenced[me] == kNoScope) return;
    released[me].add(now, any_fence);
    warp_released[me >> 5].add(now, std::min(any_fence, warp_tick[me >> 5] - 1));
    if (reach == kBlockScope) return;
    Turn turn(trace);
    Trace::OfBlock& published = trace->published[ordinal];
    published.by_any.add(now, any_fence);
    if (fenced[me] >= kDeviceScope) published.by_device.add(now, device_fence);
    if (reach == kSystemScope && fenced[me] == kSystemScope)
        published.by_system.add(now, system_fence);
}

void Tracer::acquire(Scope reach, uint64_t now) {
    if (reach >= kDeviceScope) block_acquired = now;
    if (reach == kSystemScope) system_looked = now;
}

// Is a fence or an atomic for that block's threads, too?
bool Tracer::reaches(Scope reach, uint32_t other) const {
    if (other == ordinal || reach == kSystemScope) return true;
    return reach == kDeviceScope && trace->rank_of(other) == trace->rank_of(ordinal);
}

bool Published::covers(uint32_t tick, uint64_t noticed) const {
    auto later = std::partition_point(
        steps.begin(), steps.end(),
        [noticed](const Step& step) { return step.order < noticed; });
    return later != steps.begin() && tick <= (later - 1)->tick;
}

// Did one of another block, or of this one, publish it, and has this thread taken notice?
bool Tracer::handed_over(const Touch& before) const {
    if (before.who >> 10 != ordinal) {
        Turn turn(trace);
        const Trace::OfBlock& published = trace->published[before.who >> 10];
        if (reaches(kDeviceScope, before.who >> 10))
            return published.by_device.covers(before.tick, block_acquired);
        return published.by_system.covers(before.tick, system_acquired);
    }
    if (released.empty()) return false;
    unsigned other = before.who & 1023;
    uint64_t noticed = acquired[worker->current];
    return released[other].covers(before.tick, noticed) ||
           warp_released[other >> 5].covers(before.tick, noticed);
}

// Would it be, if fences and atomics reached further?
bool Tracer::ordered_but_for_scope(const Touch& before) const {
    if (before.who >> 10 == ordinal) return false;
    Turn turn(trace);
    return trace->published[before.who >> 10].by_any.covers(before.tick,
                                                            block_acquired);
}

// Would it be, if this one had called a fence for all ranks when it had looked?
bool Tracer::ordered_but_for_fence(const Touch& before) const {
    if (reaches(kDeviceScope, before.who >> 10)) return false;
    Turn turn(trace);
    return trace->published[before.who >> 10].by_system.covers(before.tick,
                                                               system_looked);
}

// When a thread does something else, or is met, its atomic has been done. What another one
// does says nothing: this one may have been interrupted just before its atomic.
void Tracer::take_notice(unsigned thread) {
    if (noticing[thread] == kNoScope) return;
    uint64_t now = trace->next_order.fetch_add(1);
    acquire(noticing[thread], now);
    if (!fenced.empty()) acquired[thread] = now;
    noticing[thread] = kNoScope;
    --noticing_count;
}

void Tracer::meeting(unsigned warp, unsigned mask, unsigned came, int operation,
                     int line) {
    settle();
    if (operation > 0 && operation < KWEMU_OPERATION_COUNT) ++operations[operation];
    if (operation == KWEMU_MMA)
        operations[KWEMU_COPIES_UNDER_WAY] += worker->under_way[warp];
    unsigned first = warp * 32;
    unsigned there =
        worker->threads - first >= 32 ? ~0u : (1u << (worker->threads - first)) - 1;
    unsigned absent = mask & there & ~came;
    if (absent && !wounded) {
        ProblemRow row = problem(kAbsentLane, 0, 0, 0, 0, kNowhere);
        row.thread = first + __builtin_ctz(came);
        row.other_thread = first + __builtin_ctz(absent);
        row.line = line;
        row.mask = absent;
        row.op = static_cast<uint32_t>(operation);
        report(row);
    }
    // Not where the others have only returned: a part of a warp may run after another,
    // and its requests still belong together.
    if (came == there) flush(warp);
    for (unsigned rest = came; noticing_count && rest; rest &= rest - 1)
        take_notice(first + __builtin_ctz(rest));
    // A shuffle or a vote orders no memory; these do.
    if (operation != KWEMU_SYNCWARP && operation != KWEMU_GROUP &&
        operation != KWEMU_GROUP_FOLD && operation != KWEMU_MMA &&
        operation != KWEMU_FRAGMENT)
        return;
    ++tick;
    // One who took notice tells those whom it meets.
    if (!fenced.empty()) {
        uint64_t latest = 0;
        for (unsigned rest = came; rest; rest &= rest - 1)
            latest = std::max(latest, acquired[first + __builtin_ctz(rest)]);
        for (unsigned rest = came; rest; rest &= rest - 1)
            acquired[first + __builtin_ctz(rest)] = latest;
    }
    if (came == (there & ~worker->warps[warp].exited)) {
        warp_tick[warp] = tick;
        return;
    }
    if (pair_tick.empty()) pair_tick.assign(kMaxWarps * 1024, 0);
    for (unsigned a = came; a; a &= a - 1)
        for (unsigned b = came; b; b &= b - 1)
            pair_tick[warp * 1024 + __builtin_ctz(a) * 32 + __builtin_ctz(b)] = tick;
}

}  // namespace kwemu
