// The shadow of memory: who touched each word last, and whether that was in order.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "trace.h"

namespace kwemu {

namespace {

constexpr uint32_t kAtomicShift = 8;
constexpr uint32_t kAtomicBits = 3u << kAtomicShift;
constexpr unsigned kPcShift = 10;

bool writes(unsigned op) {
    return op == kStore || op == kAtomic || op == kAsyncStore;
}

// Of several pairs of threads that race on the same lines one is told of. Which blocks
// meet is chance, and what lanes of one warp lack may not be enough between two warps.
int telling(const ProblemRow& row) {
    if (row.block != row.other_block) return 0;
    return row.thread / 32 == row.other_thread / 32 ? 1 : 2;
}

}  // namespace

// Is what was touched before ordered before what the current thread does now?
bool Tracer::ordered(const Touch& before) const {
    unsigned me = worker->current;
    if (before.who >> 10 != ordinal) return handed_over(before);
    if ((before.who & 1023) == me || before.tick < block_tick) return true;
    unsigned other = before.who & 1023;
    if (handed_over(before)) return true;
    if (other >> 5 != me >> 5) return false;
    if (before.tick < warp_tick[me >> 5]) return true;
    return !pair_tick.empty() &&
           before.tick < pair_tick[(me >> 5) * 1024 + (other & 31) * 32 + (me & 31)];
}

void Tracer::touch(Cell* cells, uint64_t address, uint64_t offset, unsigned width,
                   unsigned op, uint64_t pc, int place, Scope reach) {
    uint32_t who = ordinal << 10 | worker->current;
    uint32_t pc_bits = static_cast<uint32_t>(pc - text_begin) << kPcShift;
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
                if (!wounded) {
                    ProblemRow row = problem(kUnwritten, address, width, op, pc, place);
                    // Somebody did come by, with an asynchronous copy that is under way.
                    if (current && (cell.write.meta & mask & ~written)) {
                        row.other_op = kAsyncStore;
                        row.other_pc = pc_of(cell.write);
                    }
                    report(row);
                }
                // Once a word: what follows from it is no news. No byte counts as written
                // by this thread, so that the late writer still meets its reader.
                if (!current) cell.write = {who, tick, pc_bits};
                cell.write.meta |= mask << 4;
                current = true;
            }
        }
        // Two atomics do not race, unless for one of them the other's block is not there.
        Scope before =
            static_cast<Scope>((cell.write.meta & kAtomicBits) >> kAtomicShift);
        bool both_atomic = atomic && before != kNoScope &&
                           reaches(std::min(reach, before), cell.write.who >> 10);
        if (current && !conflicted && (cell.write.meta & mask) && !both_atomic &&
            !ordered(cell.write)) {
            conflicted = true;
            race(cell.write, before != kNoScope ? kAtomic : kStore, address, width, op,
                 pc, place);
        }
        // An atomic is meant to meet others.
        if (!shared && !atomic) {
            bool again = op == kStore && (written & mask) && cell.write.who != who;
            if (again || trace->sharing[place]->watches(at >> 2))
                share(cell.write, again, at >> 2, mask, op, pc, place);
        }
        if (writes(op)) {
            const Touch* reader = nullptr;
            for (const Touch& read : cell.read) {
                bool here = shared ? read.who >> 10 == ordinal : read.who != 0;
                if (!here || conflicted || !(read.meta & mask) || ordered(read))
                    continue;
                if (!reader || reader->who / 32 == who / 32) reader = &read;
            }
            if (reader) {
                conflicted = true;
                race(*reader, kLoad, address, width, op, pc, place);
            }
            unsigned now = written | mask;
            // An asynchronous copy in flight: nobody may read the bytes yet.
            if (op == kAsyncStore) now = written & ~mask;
            cell.write = {
                who, tick,
                pc_bits | now << 4 | mask | (atomic ? reach << kAtomicShift : 0u)};
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

// Where that was done, relative to the load address.
uint64_t Tracer::pc_of(const Touch& before) const {
    return (before.meta >> kPcShift) + text_begin - worker->launch->spec.load_address;
}

void Tracer::race(const Touch& before, unsigned before_op, uint64_t address,
                  unsigned width, unsigned op, uint64_t pc, int place) {
    if (wounded) return;
    ProblemRow row = problem(kRace, address, width, op, pc, place);
    row.other_pc = pc_of(before);
    row.other_thread = before.who & 1023;
    row.other_block = trace->blocks[(before.who >> 10) - 1];
    row.other_op = before_op;
    row.narrow = ordered_but_for_fence(before) ? 2 : ordered_but_for_scope(before);
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
            uint64_t count = known.count + 1;
            if (row.kind == kRace && telling(row) > telling(known)) known = row;
            known.count = count;
            return;
        }
    }
    if (problems.size() < 256) problems.push_back(row);
}

// Its own only: a local variable of another thread is no more within reach on a GPU
// than any other address that was given to nobody.
bool Tracer::on_own_stack(uint64_t address) const {
    const char* low = worker->stacks[worker->stack_of[worker->current]];
    return address - reinterpret_cast<uint64_t>(low) < kStackBytes;
}

// A wild address a little before or behind shared memory was meant for it.
int Tracer::shared_nearby(uint64_t address) const {
    constexpr uint64_t kNear = 64 * 1024;
    if (static_bytes && address + kNear >= static_low &&
        address < static_low + static_bytes + kNear)
        return kStaticShared;
    constexpr uint64_t kAll = kDynamicShared + kPage;
    if (address + kNear >= dynamic_low && address < dynamic_low + kAll + kNear)
        return kDynamicShared_;
    return kNowhere;
}

int Tracer::find_region(uint64_t address, unsigned width) {
    const std::vector<Region>& regions = trace->regions;
    // Before an empty array, whose address is null: the end comes round to 0.
    if (address + width < width) return -1;
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
    access(address, width, width, op, pc);
}

// An asynchronous copy is two accesses; the rest of the `size` bytes are zeros.
void Tracer::copy(uint64_t to, uint64_t from, unsigned size, unsigned valid,
                  uint64_t pc, int from_line) {
    line = from_line;
    if (valid) {
        destination = to;
        access(from, size, valid, kAsyncLoad, pc);
    }
    line = from_line;
    access(to, size, size, kAsyncStore, pc);
}

// Of the `width` bytes that the instruction asks for it touches the first `extent`.
void Tracer::access(uint64_t address, unsigned width, unsigned extent, unsigned op,
                    uint64_t pc) {
    if (pending.active) settle();
    const Scope reach = scope;
    scope = kDeviceScope;  // another thread may have its turn before this one is done
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
        wild = *kind != 1 || offset + extent > static_bytes || kind[extent - 1] != 1;
    } else if ((offset = address - dynamic_low) < kDynamicShared + kPage) {
        place = kDynamicShared_;
        cells = shared_cells + (static_bytes + 3) / 4;
        wild = offset + extent > shared_bytes;
    } else {
        place = find_region(address, extent);
        if (place < 0) {
            if (on_own_stack(address)) return;
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
    // What it does on its own stack may still be a part of its atomic, and comes before it.
    if (noticing_count) take_notice(worker->current);
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
    join(number, address, op == kAsyncLoad ? destination : dynamic_low);
    if (op == kAtomic) atomic_seen(reach);
    if (cells) touch(cells, address, offset, extent, op, pc, place, reach);
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

}  // namespace kwemu
