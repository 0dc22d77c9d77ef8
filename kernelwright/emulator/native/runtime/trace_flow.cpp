// Lanes that part and meet again: a warp's steps put together as a GPU runs them.
//
// A GPU takes the lanes that went one way to where the ways meet again, then the others,
// and goes on with all: the compiler marks these places for it. Here they follow from the
// control flow that was seen.
#include <algorithm>

#include "trace.h"

namespace kwemu {

namespace {

// The round that the compiler wrote out in front of a loop.
constexpr uint32_t kInFront = kNone;

// A lane that nobody saw come into a loop is in its first round.
uint32_t round_of(const Lane& lane, uint32_t head) {
    if (head >= lane.rounds.size() || !lane.rounds[head]) return 1;
    return lane.rounds[head] == kInFront ? 0 : lane.rounds[head];
}

}  // namespace

// Less than 0: `one`, which is about to enter `a`, runs before `other`. 0: together.
int Flow::compare(uint32_t a, const Lane& one, uint32_t b, const Lane& other) {
    if (stale) compute();
    const std::vector<uint32_t>& x = nodes[a].heads;
    const std::vector<uint32_t>& y = nodes[b].heads;
    // What is about to begin a round counts as in it.
    auto rounds = [&](const Lane& lane, uint32_t node, uint32_t head) {
        bool outside = lane.last == kNone || !is_in(lane.last, head);
        if (node == head && outside) return 1u;
        if (outside && lane.last != kNone) return 0u;
        return round_of(lane, head) + (node == head);
    };
    for (size_t level = 0;; ++level) {
        bool inside = level < x.size(), also = level < y.size();
        uint32_t here = inside ? x[level] : a, there = also ? y[level] : b;
        if (here != there) return nodes[here].place < nodes[there].place ? -1 : 1;
        if (inside != also) return inside ? 1 : -1;  // no loop holds its head alone
        if (!inside) return 0;
        uint32_t mine = rounds(one, a, here), theirs = rounds(other, b, here);
        if (mine != theirs) return mine < theirs ? -1 : 1;
    }
}

void Flow::step(Lane& lane, uint32_t from, uint32_t to, const Turns& turns) {
    if (stale) compute();
    if (from != kNone && !nodes[to].is_head) {
        // To a way out of a loop, and not from within: out of the round in front of it.
        for (uint32_t head : nodes[to].heads) {
            if (is_in(from, head)) continue;
            if (lane.rounds.size() < nodes.size()) lane.rounds.resize(nodes.size());
            lane.rounds[head] = kInFront;
        }
    }
    if (!nodes[to].is_head) return;
    if (lane.rounds.size() < nodes.size()) lane.rounds.resize(nodes.size());
    uint32_t before = round_of(lane, to);
    if (turns.count)
        lane.rounds[to] = turns.entered ? turns.count : before + turns.count;
    else
        lane.rounds[to] = from != kNone && is_in(from, to) ? before + 1 : 1;
}

void Flow::waits(uint32_t from, uint32_t to, uint32_t node) {
    uint32_t head = nodes[node].inner;
    if (from == kNone || head == kNone) return;
    if (is_in(from, head) && !is_in(to, head)) nodes[head].uneven = true;
}

bool Flow::is_uneven(uint32_t node) {
    if (stale) compute();
    uint32_t head = nodes[node].inner;
    return head != kNone && nodes[head].uneven;
}

// A thread comes to a place where ways part or meet.
void Tracer::enter(uint64_t pc) {
    uint64_t offset = pc - text_begin;
    if (offset >= block_of.size()) return;
    unsigned thread = worker->current;
    Window& window = windows[thread >> 5];
    Lane& lane = window.lanes[thread & 31];
    if (block_of[offset] == kNone) block_of[offset] = flow.add(false);
    if (flow.passes(window, lane, block_of[offset])) return;
    if (is_full(lane)) window_full(thread >> 5, thread & 31);
    step(block_of[offset], kNone, 0, 0);
}

// The turns that a lane took of loops that it is in still become steps of its own: such a
// loop had no access so far, and may have one now.
void Tracer::keep_turns(Window& window, Lane& lane, uint32_t to) {
    if (lane.met == window.met) {
        for (const Turns& turns : lane.turns) {
            if (!flow.may_stay_in(turns.head, lane.at, to)) continue;
            lane.apart = window.apart = true;
            lane.own.push_back({0, turns.head, kNone, 0, turns});
        }
    }
    lane.turns.clear();
}

bool Tracer::is_full(const Lane& lane) const {
    return lane.accesses >= kWindow ||
           lane.followed + lane.own.size() - lane.taken >= kSteps;
}

void Tracer::step(uint32_t node, uint32_t site, uint64_t address, uint32_t to) {
    unsigned thread = worker->current, number = thread & 31;
    Window& window = windows[thread >> 5];
    Lane& lane = window.lanes[number];
    if (!lane.turns.empty()) keep_turns(window, lane, node);
    const uint32_t before = lane.at;
    // The leader made this very step before.
    const bool led = !lane.apart && lane.followed &&
                     lane.followed < window.steps.size() &&
                     window.steps[lane.followed].node == node &&
                     window.steps[lane.followed - 1].node == before;
    if (!led) flow.connect(before, node);
    lane.from = before;
    lane.at = node;
    if (!lane.apart && lane.followed < window.steps.size()) {
        bool access = site != kNone;
        // The leader came by when less was known of what matters.
        size_t next = lane.followed;
        while (next + 1 < window.steps.size() && window.steps[next].node != node &&
               !flow.matters(window.steps[next].node))
            ++next;
        const Step& same = window.steps[next];
        if (same.node == node && (!access || window.requests[same.slot].site == site)) {
            lane.followed = static_cast<uint32_t>(next + 1);
            if (!access) return;
            Request& request = window.requests[same.slot];
            request.mask |= 1u << number;
            request.address[number] = address;
            if (same.slot < window.destination.size())
                window.destination[same.slot][number] = to;
            return;
        }
    } else if (!lane.apart && (window.leader == number || window.steps.empty())) {
        window.leader = number;
        Step fresh{node, kNone};
        if (site != kNone) {
            fresh.slot = window.used++;
            if (window.requests.size() < window.used)
                window.requests.resize(window.used * 2 + 64);
            Request& request = window.requests[fresh.slot];
            request.site = site;
            request.mask = 1u << number;
            request.order = ++order;
            request.address[number] = address;
            if (sites[site].row.op == kAsyncLoad) {
                if (window.destination.size() < window.used)
                    window.destination.resize(window.used);
                window.destination[fresh.slot][number] = to;
            }
        }
        window.steps.push_back(fresh);
        ++lane.followed;
        return;
    }
    lane.apart = window.apart = true;
    lane.own.push_back({address, node, site, to, {}});
}

uint32_t Tracer::next_node(const Window& window, unsigned number) const {
    const Lane& lane = window.lanes[number];
    if (lane.taken < lane.followed) return window.steps[lane.taken].node;
    uint32_t at = lane.taken - lane.followed;
    return at < lane.own.size() ? lane.own[at].node : kNone;
}

// One step of these lanes, which all are about to take the same one.
void Tracer::take(unsigned warp, uint32_t mask) {
    Window& window = windows[warp];
    uint32_t done = 0;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        // One instruction may touch two places at once: a request for each.
        unsigned first = static_cast<unsigned>(__builtin_ctz(rest));
        if (done >> first & 1) continue;
        Request request{kNone, 0, 0, {}};
        uint32_t to[32];
        for (uint32_t others = mask & ~done; others; others &= others - 1) {
            unsigned number = static_cast<unsigned>(__builtin_ctz(others));
            Lane& lane = window.lanes[number];
            uint32_t site;
            if (lane.taken < lane.followed) {
                uint32_t slot = window.steps[lane.taken].slot;
                site = slot == kNone ? kNone : window.requests[slot].site;
                if (number != first && site != request.site) continue;
                if (site != kNone) {
                    request.address[number] = window.requests[slot].address[number];
                    if (slot < window.destination.size())
                        to[number] = window.destination[slot][number];
                }
            } else {
                const OwnStep& own = lane.own[lane.taken - lane.followed];
                site = own.site;
                if (number != first && site != request.site) continue;
                request.address[number] = own.address;
                to[number] = own.to;
            }
            request.site = site;
            request.mask |= 1u << number;
        }
        done |= request.mask;
        if (request.site == kNone) continue;
        request.order = ++order;
        finish(request, to, warp);
    }
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        unsigned number = static_cast<unsigned>(__builtin_ctz(rest));
        Lane& lane = window.lanes[number];
        uint32_t node = next_node(window, number);
        Turns turns{};
        if (lane.taken >= lane.followed)
            turns = lane.own[lane.taken - lane.followed].turns;
        flow.step(lane, lane.last, node, turns);
        lane.last = node;
        ++lane.taken;
    }
}

// The lanes that run first, all about to take the same step.
uint32_t Tracer::first_of(const Window& window, uint32_t lanes) {
    uint32_t first = 0, best = 0, node = kNone;
    for (uint32_t rest = lanes; rest; rest &= rest - 1) {
        unsigned number = static_cast<unsigned>(__builtin_ctz(rest));
        uint32_t next = next_node(window, number);
        int order = node == kNone ? -1
                                  : flow.compare(next, window.lanes[number], node,
                                                 window.lanes[best]);
        if (order > 0) continue;
        if (order < 0) {
            first = 0;
            best = number;
            node = next;
        }
        first |= 1u << number;
    }
    return first;
}

// Puts the lanes' own steps together; false where a lane that can still run has to say
// first what it does next.
bool Tracer::replay(unsigned warp, bool met) {
    Window& window = windows[warp];
    for (;;) {
        uint32_t lanes = 0;
        for (unsigned number = 0; number < 32; ++number) {
            if (next_node(window, number) != kNone) {
                lanes |= 1u << number;
            } else if (!met && worker->ready[warp] >> number & 1) {
                keep_rest(window);
                return false;
            }
        }
        if (!lanes) return true;
        uint32_t first = first_of(window, lanes);
        uint32_t node = next_node(window, static_cast<unsigned>(__builtin_ctz(first)));
        for (uint32_t rest = lanes & ~first; rest; rest &= rest - 1) {
            unsigned number = static_cast<unsigned>(__builtin_ctz(rest));
            flow.waits(window.lanes[number].last, next_node(window, number), node);
        }
        take(warp, first);
    }
}

// What is left of the steps becomes each lane's own.
void Tracer::keep_rest(Window& window) {
    for (unsigned number = 0; number < 32; ++number) {
        Lane& lane = window.lanes[number];
        std::vector<OwnStep> left;
        uint32_t accesses = 0;
        for (; next_node(window, number) != kNone; ++lane.taken) {
            if (lane.taken >= lane.followed) {
                left.push_back(lane.own[lane.taken - lane.followed]);
            } else {
                const Step& step = window.steps[lane.taken];
                OwnStep own{0, step.node, kNone, 0, {}};
                if (step.slot != kNone) {
                    own.site = window.requests[step.slot].site;
                    own.address = window.requests[step.slot].address[number];
                    if (step.slot < window.destination.size())
                        own.to = window.destination[step.slot][number];
                }
                left.push_back(own);
            }
            accesses += left.back().site != kNone;
        }
        lane.own.swap(left);
        lane.followed = lane.taken = 0;
        lane.accesses = accesses;
        lane.apart = true;
    }
}

}  // namespace kwemu
