// The shadow of memory: who touched each word last, and whether that was in order.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "trace.h"

namespace kwemu {

namespace {

constexpr uint32_t kAtomicBit = 1u << 8;

bool writes(unsigned op) {
    return op == kStore || op == kAtomic || op == kAsyncStore;
}

}  // namespace

// Is what was touched before ordered before what the current thread does now?
bool Tracer::ordered(const Touch& before) const {
    unsigned me = worker->current;
    if (before.who >> 10 != ordinal) {
        const Trace::Published& other = trace->published[before.who >> 10];
        return other.order && before.tick <= other.tick && other.order < block_acquired;
    }
    if ((before.who & 1023) == me || before.tick < block_tick) return true;
    unsigned other = before.who & 1023;
    if (!released.empty() && released[other] && before.tick <= released_tick[other] &&
        released[other] < acquired[me])
        return true;
    if (other >> 5 != me >> 5) return false;
    if (before.tick < warp_tick[me >> 5]) return true;
    return !pair_tick.empty() &&
           before.tick < pair_tick[(me >> 5) * 1024 + (other & 31) * 32 + (me & 31)];
}

void Tracer::touch(Cell* cells, uint64_t address, uint64_t offset, unsigned width,
                   unsigned op, uint64_t pc, int place) {
    uint32_t who = ordinal << 10 | worker->current;
    uint32_t pc_bits = static_cast<uint32_t>(pc - text_begin) << 9;
    bool shared = place < 0;
    bool atomic = op == kAtomic;
    unsigned first_byte = offset & 3;
    bool conflicted = false;
    for (uint64_t at = offset & ~3ull; at < offset + width; at += 4) {
        Cell& cell = cells[at >> 2];
        unsigned bytes = width >= 4 ? 15u : (1u << width) - 1;
        unsigned mask = at < offset ? (bytes << first_byte) & 15 : bytes;
        bool current = shared ? cell.write.who >> 10 == ordinal : cell.write.who != 0;
        unsigned written = current ? cell.write.meta >> 4 & 15 : 0;
        if (!writes(op) || atomic) {
            bool must_know = shared || trace->regions[place].unwritten;
            if (must_know && (written & mask) != mask) {
                if (!wounded)
                    report(problem(kUnwritten, address, width, op, pc, place));
                // Once a word: what follows from it is no news. No byte counts as written
                // by this thread, so that the late writer still meets its reader.
                if (!current) cell.write = {who, tick, pc_bits};
                cell.write.meta |= mask << 4;
                current = true;
            }
        }
        bool both_atomic = atomic && (cell.write.meta & kAtomicBit);
        if (current && !conflicted && (cell.write.meta & mask) && !both_atomic &&
            !ordered(cell.write)) {
            conflicted = true;
            race(cell.write, cell.write.meta & kAtomicBit ? kAtomic : kStore, address,
                 width, op, pc, place);
        }
        if (writes(op)) {
            for (Touch& read : cell.read) {
                bool here = shared ? read.who >> 10 == ordinal : read.who != 0;
                if (!here || conflicted || !(read.meta & mask) || ordered(read))
                    continue;
                conflicted = true;
                race(read, kLoad, address, width, op, pc, place);
            }
            unsigned now = written | mask;
            // An asynchronous copy in flight: nobody may read the bytes yet.
            if (op == kAsyncStore) now = written & ~mask;
            cell.write = {who, tick,
                          pc_bits | now << 4 | mask | (atomic ? kAtomicBit : 0)};
        } else if (cell.read[0].who != who) {
            // Readers of two blocks conflict with any writer: no need to know a third.
            bool full = !shared && cell.read[0].who && cell.read[1].who &&
                        cell.read[0].who >> 10 != cell.read[1].who >> 10;
            if (full) continue;
            cell.read[1] = cell.read[0];
            cell.read[0] = {who, tick, pc_bits | mask};
        } else {
            cell.read[0] = {who, tick, pc_bits | mask};
        }
    }
}

void Tracer::race(const Touch& before, unsigned before_op, uint64_t address,
                  unsigned width, unsigned op, uint64_t pc, int place) {
    if (wounded) return;
    ProblemRow row = problem(kRace, address, width, op, pc, place);
    row.other_pc = (before.meta >> 9) + text_begin - worker->launch->spec.load_address;
    row.other_thread = before.who & 1023;
    row.other_block = trace->blocks[(before.who >> 10) - 1];
    row.other_op = before_op;
    if (op == kStore && before_op == kStore && width <= 16) {
        // The same value twice hurts nobody; what this one writes is not known yet.
        if (pending.active) settle();
        pending.active = true;
        pending.width = width;
        pending.address = address;
        memcpy(pending.before, reinterpret_cast<void*>(address), width);
        pending.problem = row;
        return;
    }
    report(row);
}

void Tracer::settle() {
    if (!pending.active) return;
    pending.active = false;
    const void* now = reinterpret_cast<const void*>(pending.address);
    if (memcmp(pending.before, now, pending.width) != 0) report(pending.problem);
}

ProblemRow Tracer::problem(ProblemKind kind, uint64_t address, unsigned width,
                           unsigned op, uint64_t pc, int place) {
    ProblemRow row{};
    row.kind = kind;
    row.place = place;
    row.pc = pc ? pc - worker->launch->spec.load_address : 0;
    row.address = address;
    row.block = block;
    row.thread = worker->current;
    row.op = op;
    row.width = width;
    row.count = 1;
    return row;
}

void Tracer::report(const ProblemRow& row) {
    for (ProblemRow& known : problems) {
        if (known.kind == row.kind && known.pc == row.pc &&
            known.other_pc == row.other_pc && known.line == row.line &&
            known.place == row.place) {
            ++known.count;
            return;
        }
    }
    if (problems.size() < 256) problems.push_back(row);
}

bool Tracer::on_stack(uint64_t address) const {
    for (const auto& range : stacks)
        if (address >= range.first && address < range.second) return true;
    return false;
}

// A wild address a little before or behind shared memory was meant for it.
int Tracer::shared_nearby(uint64_t address) const {
    constexpr uint64_t kNear = 64 * 1024;
    if (static_bytes && address + kNear >= static_low &&
        address < static_low + static_bytes + kNear)
        return kStaticShared;
    if (shared_bytes && address + kNear >= dynamic_low && address < dynamic_low)
        return kDynamicShared_;
    return kNowhere;
}

int Tracer::find_region(uint64_t address, unsigned width) {
    const std::vector<Region>& regions = trace->regions;
    if (last_region < regions.size()) {
        const Region& last = regions[last_region];
        if (address >= last.low && address + width <= last.high)
            return static_cast<int>(last_region);
    }
    for (uint32_t i = 0; i < regions.size(); ++i) {
        if (address < regions[i].low || address + width > regions[i].high) continue;
        last_region = i;
        return static_cast<int>(i);
    }
    return -1;
}

void Tracer::access(uint64_t address, unsigned width, unsigned op, uint64_t pc) {
    if (pending.active) settle();
    if (pc - text_begin >= site_of.size()) return;
    int place;
    Cell* cells;
    bool wild = false;
    uint64_t offset = address - static_low;
    if (offset < static_bytes) {
        const uint8_t* kind = trace->tls_kind.data() + offset;
        if (*kind == 2) return;
        place = kStaticShared;
        cells = shared_cells;
        wild = *kind != 1 || offset + width > static_bytes || kind[width - 1] != 1;
    } else if ((offset = address - dynamic_low) < kDynamicShared + kPage) {
        place = kDynamicShared_;
        cells = shared_cells + (static_bytes + 3) / 4;
        wild = offset + width > shared_bytes;
    } else {
        place = find_region(address, width);
        if (place < 0) {
            if (on_stack(address)) return;
            bool ours =
                address >= trace->spec.image_low && address < trace->spec.image_high;
            if (ours) return;
            wild = true;
            place = shared_nearby(address);
            // What else this instruction touched is what it was meant for.
            uint32_t before = site_of[pc - text_begin];
            if (place == kNowhere && before != kNone) place = sites[before].row.place;
        } else {
            cells = trace->cells[place];
            offset = address - (trace->regions[place].low & ~3ull);
        }
    }
    if (wild) {
        report(problem(kOutOfBounds, address, width, op, pc, place));
        wounded = true;
        end_thread();
    }
    if (address & (width - 1)) {
        wounded = true;
        report(problem(kMisaligned, address, width, op, pc, place));
        end_thread();
    }
    uint32_t number = site(pc, place, op, width, address);
    line = 0;  // another thread may have its turn now
    join(number, address);
    if (op == kAtomic) atomic_seen();
    if (cells) touch(cells, address, offset, width, op, pc, place);
}

// The bytes of an asynchronous copy are there, for the thread that waited.
void Tracer::copy_arrived(uint64_t address, unsigned width) {
    Cell* cells = shared_cells;
    uint64_t offset = address - static_low;
    if (offset >= static_bytes) {
        offset = address - dynamic_low;
        cells += (static_bytes + 3) / 4;
    }
    for (uint64_t at = offset; at < offset + width; at += 4) {
        Touch& write = cells[at >> 2].write;
        if (write.who != (ordinal << 10 | worker->current)) continue;
        write.tick = tick;
        write.meta |= 15u << 4;
    }
}

// The thread goes no further: on a GPU this access ends the launch.
void Tracer::end_thread() {
    Worker* w = worker;
    unsigned stack = w->stack_of[w->current];
    w->exit_current();
    unsigned next = w->pick();
    if (next == kNobody) w->give_up(w->exited == w->threads ? kFine : kDeadlock);
    w->current = next;
    ++w->switches;
    if (w->sp[next] == nullptr) w->take_stack(next);
    w->free_stacks.push_back(static_cast<uint16_t>(stack));
    kwemu_jump(w->sp[next]);
}

// Every thread of the block that has not returned is here.
void Tracer::barrier() {
    settle();
    ++barriers;
    left_out.clear();
    unsigned missing = kNobody;
    for (unsigned warp = 0; warp * 32 < worker->threads; ++warp) {
        unsigned left = worker->threads - warp * 32;
        unsigned there = left >= 32 ? ~0u : (1u << left) - 1;
        unsigned gone = worker->warps[warp].exited & there;
        if (gone && missing == kNobody) missing = warp * 32 + __builtin_ctz(gone);
        flush(warp);
    }
    block_tick = ++tick;
    if (missing == kNobody || wounded || early_exit) return;
    early_exit = true;
    barrier_number = ++order;
    barrier_line = worker->barrier_line;
    missed = problem(kEarlyExit, 0, 0, 0, 0, kNowhere);
    missed.line = barrier_line;
    missed.thread = missing;
    for (uint32_t number : left_out) sites[number].bypassed = barrier_number;
}

// A thread that was missing at a barrier had been here already, and now one that waited
// there comes by: the two took different ways to the same place.
void Tracer::bypassed(const Site& site) {
    if (diverged || wounded) return;
    diverged = true;
    ProblemRow row = missed;
    row.kind = kDivergentBarrier;
    row.other_pc = site.row.pc;
    report(row);
}

// A fence and then an atomic publish what was done before; another thread's atomic after
// that has it. (More forgiving than the standard: the atomics may be on any address.)
void Tracer::fence() {
    if (fenced.empty()) {
        fenced.assign(kMaxThreads, 0);
        released.assign(kMaxThreads, 0);
        acquired.assign(kMaxThreads, 0);
        released_tick.assign(kMaxThreads, 0);
    }
    fenced[worker->current] = 1;
}

void Tracer::atomic_seen() {
    uint64_t now = trace->next_order.fetch_add(1);
    block_acquired = now;
    if (fenced.empty()) return;
    unsigned me = worker->current;
    acquired[me] = now;
    if (!fenced[me]) return;
    released[me] = now;
    released_tick[me] = tick;
    trace->published[ordinal] = {now, tick};
}

void Tracer::meeting(unsigned warp, unsigned mask, unsigned came, int operation,
                     int line) {
    settle();
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
    // A shuffle or a vote orders no memory; these do.
    if (operation != KWEMU_SYNCWARP && operation != KWEMU_GROUP &&
        operation != KWEMU_MMA)
        return;
    ++tick;
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
