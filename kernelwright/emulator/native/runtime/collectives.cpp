// Barriers, and the meetings of a warp's lanes: shuffles, votes, matches, mma.
#include <cstring>

#include "state.h"
#include "trace.h"

using namespace kwemu;

namespace kwemu {

void Worker::finish_meeting(Warp& warp, unsigned number, Meeting& meeting) {
    unsigned came = meeting.arrived;
    (void)warp;
    if (tracer)
        tracer->meeting(number, meeting.mask, came, meeting.operation, meeting.line);
    locked = true;
    meeting.combine(meeting.lanes, came);
    locked = false;
    meeting.arrived = 0;
    make_ready(number, came);
}

// Nobody else of the warp can run: the parked lanes that stand at one line are the ones
// that a GPU would have found active together there.
void Worker::resolve_parked(unsigned number) {
    Warp& warp = warps[number];
    unsigned left = warp.parked;
    warp.parked = 0;
    make_ready(number, left);
    while (left) {
        int line = wait[number * 32 + __builtin_ctz(left)].line;
        unsigned group = 0;
        for (unsigned rest = left; rest; rest &= rest - 1) {
            unsigned lane = __builtin_ctz(rest);
            if (wait[number * 32 + lane].line == line) group |= 1u << lane;
        }
        for (unsigned rest = group; rest; rest &= rest - 1)
            active_mask[number * 32 + __builtin_ctz(rest)] = group;
        left &= ~group;
    }
}

}  // namespace kwemu

namespace {

// Every lane brings the same pointer, the warp's.
void shuffle_lanes(void** lanes, unsigned present) {
    Warp& warp = *static_cast<Warp*>(lanes[__builtin_ctz(present)]);
    unsigned long long before[32];
    memcpy(before, warp.value, sizeof before);
    for (unsigned rest = present; rest; rest &= rest - 1) {
        unsigned lane = __builtin_ctz(rest);
        unsigned from = warp.source[lane];
        // From a lane that is not there a GPU gives anything; here, what neither a sum
        // nor a maximum nor a minimum hides: as any number, huge, and of either sign.
        unsigned long long anything =
            lane & 1 ? 0xff7fff7fff7fff7full : 0x7f7f7f7f7f7f7f7full;
        warp.value[lane] = present >> from & 1 ? before[from] : anything;
    }
}

struct Vote {
    int predicate;
    unsigned result;
};

void vote_lanes(void** lanes, unsigned present) {
    unsigned ballot = 0;
    for (unsigned rest = present; rest; rest &= rest - 1) {
        unsigned lane = __builtin_ctz(rest);
        if (static_cast<Vote*>(lanes[lane])->predicate) ballot |= 1u << lane;
    }
    for (unsigned rest = present; rest; rest &= rest - 1)
        static_cast<Vote*>(lanes[__builtin_ctz(rest)])->result = ballot;
}

struct Match {
    unsigned long long value;
    int all;
    unsigned result;
};

void match_lanes(void** lanes, unsigned present) {
    for (unsigned rest = present; rest; rest &= rest - 1) {
        Match* own = static_cast<Match*>(lanes[__builtin_ctz(rest)]);
        unsigned same = 0;
        for (unsigned other = present; other; other &= other - 1) {
            unsigned lane = __builtin_ctz(other);
            if (static_cast<Match*>(lanes[lane])->value == own->value)
                same |= 1u << lane;
        }
        own->result = own->all && same != present ? 0 : same;
    }
}

// It has no mask that a kernel's author could change.
bool takes_a_whole_warp(int operation) {
    return operation == KWEMU_MMA || operation == KWEMU_LDMATRIX ||
           operation == KWEMU_FRAGMENT;
}

void arrive(Worker& worker, int line) {
    unsigned thread = worker.current;
    if (worker.arrived == 0) {
        worker.barrier_line = line;
    } else if (worker.barrier_line != line) {
        worker.fail(kBarrier, line, worker.barrier_line);
    }
    ++worker.arrived;
    worker.warps[thread >> 5].at_barrier |= 1u << (thread & 31);
    worker.wait[thread] = {KWEMU_BARRIER, line, 0};
    if (worker.arrived + worker.exited == worker.threads) {
        worker.release_barrier();
    } else {
        worker.block_current();
    }
}

}  // namespace

extern "C" {

void kwemu_barrier(int line) {
    arrive(*self, line);
}

int kwemu_barrier_count(int predicate, int line) {
    // The counter is one for all: a thread reads the result of a barrier that it has
    // passed, and the next result cannot be made before it arrives there too.
    self->barrier_sum += predicate != 0;
    arrive(*self, line);
    return self->barrier_result;
}

void kwemu_meet(unsigned mask, int operation, void* own, kwemu_combine combine,
                int line) {
    Worker& worker = *self;
    unsigned thread = worker.current, number = thread >> 5, bit = 1u << (thread & 31);
    Warp& warp = worker.warps[number];
    if (!(mask & bit)) worker.fail(kSyncMask, line, 0, mask, "self");
    Meeting* meeting = nullptr;
    unsigned i = 0;
    for (; i < warp.meetings_used; ++i) {
        Meeting& slot = warp.meetings[i];
        if (slot.mask == mask && slot.arrived) {
            meeting = &slot;
            break;
        }
        if (!slot.arrived && !meeting) meeting = &slot;
    }
    if (!meeting) meeting = &warp.meetings[warp.meetings_used++];
    if (!meeting->arrived) {
        meeting->mask = mask;
        meeting->operation = operation;
        meeting->line = line;
        meeting->combine = combine;
    } else if (meeting->operation != operation) {
        unsigned other = number * 32 + __builtin_ctz(meeting->arrived);
        bool whole =
            takes_a_whole_warp(operation) || takes_a_whole_warp(meeting->operation);
        worker.fail(kSyncMask, line, worker.wait[other].line, mask,
                    whole ? "whole warp" : "operations");
    }
    meeting->arrived |= bit;
    meeting->lanes[thread & 31] = own;
    if (meeting->arrived == (mask & ~warp.exited)) {
        worker.finish_meeting(warp, number, *meeting);
        return;
    }
    worker.wait[thread] = {operation, line, mask};
    worker.block_current();
}

unsigned long long kwemu_shuffle(unsigned mask, unsigned long long value,
                                 unsigned source, int line) {
    Worker& worker = *self;
    unsigned lane = worker.current & 31;
    Warp& warp = worker.warps[worker.current >> 5];
    warp.value[lane] = value;
    warp.source[lane] = static_cast<unsigned char>(source & 31);
    kwemu_meet(mask, KWEMU_SHUFFLE, &warp, shuffle_lanes, line);
    return warp.value[lane];
}

unsigned kwemu_ballot(unsigned mask, int predicate, int line) {
    Vote own{predicate, 0};
    kwemu_meet(mask, KWEMU_VOTE, &own, vote_lanes, line);
    return own.result;
}

unsigned kwemu_match(unsigned mask, unsigned long long value, int all, int line) {
    Match own{value, all, 0};
    kwemu_meet(mask, KWEMU_MATCH, &own, match_lanes, line);
    return own.result;
}

unsigned kwemu_activemask(int line) {
    Worker& worker = *self;
    unsigned thread = worker.current;
    worker.warps[thread >> 5].parked |= 1u << (thread & 31);
    worker.wait[thread] = {KWEMU_ACTIVEMASK, line, 0};
    worker.block_current();
    return worker.active_mask[thread];
}

void kwemu_yield() {
    self->yield();
}

void kwemu_copy_async(void* to, const void* from, unsigned size, unsigned valid,
                      int line) {
    Worker& worker = *self;
    if (worker.tracer) {
        uint64_t pc = reinterpret_cast<uint64_t>(__builtin_return_address(0));
        worker.tracer->copy(reinterpret_cast<uint64_t>(to),
                            reinterpret_cast<uint64_t>(from), size, valid, pc, line);
    }
    if (worker.copies.empty()) worker.copies.resize(kMaxThreads);
    if (worker.copies_in_use <= worker.current)
        worker.copies_in_use = worker.current + 1;
    Copies& copies = worker.copies[worker.current];
    Copy copy;
    copy.to = to;
    copy.size = size;
    copy.group = copies.open_group;
    memset(copy.bytes, 0, sizeof copy.bytes);
    memcpy(copy.bytes, from, valid);
    // Whoever reads before the wait shall see that it did: all ones is no number.
    memset(to, 0xff, size);
    copies.pending.push_back(copy);
    worker.under_way[worker.current >> 5] += size;
}

void kwemu_copy_commit() {
    Worker& worker = *self;
    if (worker.copies.empty()) worker.copies.resize(kMaxThreads);
    if (worker.copies_in_use <= worker.current)
        worker.copies_in_use = worker.current + 1;
    ++worker.copies[worker.current].open_group;
}

void kwemu_copy_wait(unsigned newest_still_open) {
    Worker& worker = *self;
    if (worker.copies_in_use <= worker.current) return;
    Copies& copies = worker.copies[worker.current];
    size_t kept = 0;
    for (const Copy& copy : copies.pending) {
        if (copy.group + newest_still_open < copies.open_group) {
            memcpy(copy.to, copy.bytes, copy.size);
            worker.under_way[worker.current >> 5] -= copy.size;
            if (worker.tracer)
                worker.tracer->copy_arrived(reinterpret_cast<uint64_t>(copy.to),
                                            copy.size);
        } else {
            copies.pending[kept++] = copy;
        }
    }
    copies.pending.resize(kept);
}

}  // extern "C"
