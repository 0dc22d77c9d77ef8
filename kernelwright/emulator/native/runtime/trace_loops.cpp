// The kernel's control flow as it was seen: its loops, an order of what is in it, and which
// steps through it matter to a warp's requests.
#include <algorithm>

#include "trace.h"

namespace kwemu {

uint32_t Flow::add(bool access) {
    nodes.emplace_back();
    nodes.back().access = access;
    changed();
    return static_cast<uint32_t>(nodes.size() - 1);
}

Flow::Known& Flow::known_step(uint32_t from, uint32_t to) {
    return known[(from * 37 + to) % kKnown];
}

void Flow::connect(uint32_t from, uint32_t to) {
    if (from == kNone) return;
    const Known& step = known_step(from, to);
    if (step.from == from && step.to == to) return;
    std::vector<uint32_t>& after = nodes[from].after;
    if (std::find(after.begin(), after.end(), to) != after.end()) {
        if (!stale && nodes[to].access) known_step(from, to) = {from, to, Known::kKept};
        return;
    }
    after.push_back(to);
    nodes[to].before.push_back(from);
    changed();
}

void Flow::changed() {
    if (!stale) std::fill(known.begin(), known.end(), Known{});
    stale = true;
}

bool Flow::passes(Window& window, Lane& lane, uint32_t to) {
    uint32_t from = lane.at;
    if (from == kNone) return false;
    Known& step = known_step(from, to);
    ++made;
    if (step.from != from || step.to != to) {
        connect(from, to);
        // To look at the loops anew is dear: not at every step that is new.
        if (stale && made <= nodes.size()) return false;
        if (stale) compute();
        auto kind = Known::kPlain;
        if (matters(to))
            kind = Known::kKept;
        else if (nodes[to].is_head)
            kind = is_in(from, to) ? Known::kTurns : Known::kEnters;
        step = {from, to, kind};
    }
    if (step.kind == Known::kKept) return false;
    lane.from = from;
    lane.at = to;
    if (step.kind == Known::kPlain) return true;
    if (lane.met != window.met) lane.turns.clear();
    lane.met = window.met;
    auto taken = lane.turns.begin();
    while (taken != lane.turns.end() && taken->head != to) ++taken;
    if (taken == lane.turns.end()) taken = lane.turns.insert(taken, {to, 0, false});
    if (step.kind == Known::kTurns)
        ++taken->count;
    else
        *taken = {to, 1, true};
    return true;
}

bool Flow::matters(uint32_t node) const {
    return stale || nodes[node].access || nodes[node].heads.empty() ||
           !nodes[nodes[node].heads.back()].barren;
}

bool Flow::may_stay_in(uint32_t head, uint32_t from, uint32_t to) const {
    if (!is_in(from, head)) return false;
    return stale || nodes[to].after.empty() || is_in(to, head);
}

// Gives every node its place, before those that it leads to, and returns the steps back:
// those to a node through which the walk came.
std::vector<std::pair<uint32_t, uint32_t>> Flow::put_in_order() {
    std::vector<std::pair<uint32_t, uint32_t>> back;
    std::vector<uint8_t> state(nodes.size());  // 1: on the way, 2: done
    std::vector<std::pair<uint32_t, size_t>> open;
    uint32_t place = static_cast<uint32_t>(nodes.size());
    for (bool roots : {true, false}) {
        for (uint32_t root = 0; root < nodes.size(); ++root) {
            if (state[root] || (roots && !nodes[root].before.empty())) continue;
            state[root] = 1;
            open.push_back({root, 0});
            while (!open.empty()) {
                auto& [node, next] = open.back();
                if (next == nodes[node].after.size()) {
                    state[node] = 2;
                    nodes[node].place = --place;
                    open.pop_back();
                    continue;
                }
                uint32_t to = nodes[node].after[next++];
                if (state[to] == 1) back.push_back({node, to});
                if (state[to]) continue;
                state[to] = 1;
                open.push_back({to, 0});
            }
        }
    }
    return back;
}

// What threads do on their way out of a loop, before they come to where all ways out meet,
// they do in the round that they leave in: `if (found) { count = k; break; }`.
void Flow::add_ways_out(std::vector<uint32_t>& body) const {
    std::vector<uint8_t> inside(nodes.size());
    for (uint32_t node : body) inside[node] = 1;
    std::vector<uint32_t> exits;
    for (uint32_t node : body)
        for (uint32_t to : nodes[node].after)
            if (!inside[to] && std::find(exits.begin(), exits.end(), to) == exits.end())
                exits.push_back(to);
    if (exits.size() < 2) return;
    // For each node, how many of the exits lead to it. What nothing follows is no place
    // to meet: there a thread returns.
    std::vector<uint32_t> count(nodes.size()), most(exits.size());
    for (size_t i = 0; i < exits.size(); ++i) {
        std::vector<uint8_t> seen = inside;
        std::vector<uint32_t> open = {exits[i]};
        seen[exits[i]] = 1;
        while (!open.empty()) {
            uint32_t node = open.back();
            open.pop_back();
            ++count[node];
            ++most[i];
            for (uint32_t to : nodes[node].after) {
                // Not around another loop: there all comes before all.
                if (seen[to] || nodes[to].place < nodes[node].place) continue;
                seen[to] = 1;
                open.push_back(to);
            }
        }
    }
    uint32_t meeting = kNone;
    for (uint32_t node = 0; node < nodes.size(); ++node)
        if (count[node] == exits.size() && !nodes[node].after.empty() &&
            (meeting == kNone || nodes[node].place < nodes[meeting].place))
            meeting = node;
    if (meeting == kNone)
        meeting = exits[static_cast<size_t>(std::max_element(most.begin(), most.end()) -
                                            most.begin())];
    const uint32_t first = nodes[body.front()].place;
    std::vector<uint32_t> open = exits;
    while (!open.empty()) {
        uint32_t node = open.back();
        open.pop_back();
        bool own = node != meeting && !inside[node] && !nodes[node].after.empty();
        // Where the compiler wrote the first round out in front of the loop, that round
        // leaves by the same way.
        for (uint32_t before : nodes[node].before)
            own = own && (inside[before] || nodes[before].place < first);
        if (!own) continue;
        inside[node] = 1;
        body.push_back(node);
        for (uint32_t to : nodes[node].after) open.push_back(to);
    }
}

// A loop whose turns need not be kept: no access waits for lanes in its rounds.
void Flow::find_barren_loops() {
    for (Node& node : nodes) node.barren = true;
    for (Node& node : nodes)
        if (node.access)
            for (uint32_t head : node.heads) nodes[head].barren = false;
}

void Flow::compute() {
    stale = false;
    made = 0;
    auto back = put_in_order();
    // A loop: its head, and what leads to a step back without passing the head.
    std::vector<std::vector<uint32_t>> bodies(nodes.size());
    std::vector<uint32_t> heads;
    for (const auto& step : back)
        if (bodies[step.second].empty()) {
            bodies[step.second].push_back(step.second);
            heads.push_back(step.second);
        }
    for (uint32_t head : heads) {
        std::vector<uint8_t> seen(nodes.size());
        std::vector<uint32_t>& body = bodies[head];
        seen[head] = 1;
        auto reach = [&](uint32_t node) {
            if (!seen[node]) body.push_back(node);
            seen[node] = 1;
        };
        for (const auto& step : back)
            if (step.second == head) reach(step.first);
        for (size_t i = 1; i < body.size(); ++i)
            for (uint32_t before : nodes[body[i]].before) reach(before);
    }
    auto larger = [&](uint32_t a, uint32_t b) {
        return bodies[a].size() > bodies[b].size();
    };
    std::sort(heads.begin(), heads.end(), larger);
    for (Node& node : nodes) {
        node.heads.clear();
        node.inner = kNone;
        node.is_head = false;
    }
    for (uint32_t head : heads) {
        nodes[head].is_head = true;
        for (uint32_t node : bodies[head]) nodes[node].inner = head;
        add_ways_out(bodies[head]);
    }
    std::sort(heads.begin(), heads.end(), larger);
    for (uint32_t head : heads)
        for (uint32_t node : bodies[head]) nodes[node].heads.push_back(head);
    find_barren_loops();
}

// Of the ways from a node to where threads end, which go through another?
Flow::Ways Flow::ways(uint32_t from, uint32_t to) const {
    std::vector<uint8_t> seen(nodes.size());
    std::vector<uint32_t> open = {from};
    bool through = false, around = false;
    while (!open.empty()) {
        uint32_t node = open.back();
        open.pop_back();
        around = around || ends(node);
        for (uint32_t next : nodes[node].after) {
            through = through || next == to;
            if (next != to && !seen[next]) open.push_back(next);
            seen[next] = 1;
        }
    }
    return !through ? kNoWay : around ? kSomeWays : kAllWays;
}

bool Flow::lies_behind(uint32_t node, uint32_t from) const {
    return ways(from, node) == kAllWays && ways(node, from) == kNoWay;
}

bool Flow::is_in(uint32_t node, uint32_t head) const {
    const std::vector<uint32_t>& heads = nodes[node].heads;
    return std::find(heads.begin(), heads.end(), head) != heads.end();
}

}  // namespace kwemu
