// Who loads and stores the same elements of global memory: work that is done twice.
#include <algorithm>

#include "trace.h"

namespace kwemu {

Sharing::Sharing(uint64_t count) {
    if (!count) return;
    uint64_t last = count - 1;
    // Neighbours, too: who goes over the array in steps has one of them at most.
    uint64_t chosen[kFixed] = {0, std::min<uint64_t>(1, last), last / 3, 2 * last / 3,
                               last};
    for (unsigned i = 0; i < kFixed; ++i) words[i].word = chosen[i];
}

bool Sharing::watches(uint64_t word) const {
    for (const Watched& one : words)
        if (__atomic_load_n(&one.word, __ATOMIC_RELAXED) == word) return true;
    return false;
}

// The current thread touches a word that is watched, or stores over another's value.
void Tracer::share(const Touch& before, bool again, uint64_t word, unsigned mask,
                   unsigned op, uint64_t pc, int place) {
    Sharing& sharing = *trace->sharing[place];
    uint32_t who = ordinal << 10 | worker->current;
    while (sharing.lock.test_and_set(std::memory_order_acquire)) {
    }
    Sharing::Watched& met = sharing.words[Sharing::kFixed];
    // Of all places where stores meet it is the lowest, whichever block came there first.
    if (again && word < met.word) {
        met.bytes = mask;
        met.stored = {before.who};
        met.loaded.clear();
        sharing.pc = pc - worker->launch->spec.load_address;
        sharing.other_pc = pc_of(before);
        __atomic_store_n(&met.word, word, __ATOMIC_RELAXED);
    }
    for (Sharing::Watched& one : sharing.words)
        if (one.word == word && (one.bytes & mask))
            (op == kStore ? one.stored : one.loaded).insert(who);
    sharing.lock.clear(std::memory_order_release);
}

}  // namespace kwemu

#pragma GCC visibility push(default)
extern "C" void kwemu_trace_sharing(kwemu::Trace* trace, unsigned region,
                                    kwemu::SharingResult* result) {
    kwemu::Sharing& sharing = *trace->sharing[region];
    uint64_t low = trace->regions[region].low & ~3ull;
    sharing.rows.clear();
    auto add = [&](uint64_t word, uint32_t who, kwemu::AccessOp op) {
        sharing.rows.push_back(
            {low + 4 * word, trace->blocks[(who >> 10) - 1], who & 1023, op});
    };
    // Blocks run side by side: who stored before any two were seen to meet is known of a
    // word that was watched from the beginning.
    kwemu::Sharing::Watched& last = sharing.words[kwemu::Sharing::kFixed];
    for (const kwemu::Sharing::Watched& one : sharing.words)
        if (&one != &last && one.word == last.word && (one.bytes & last.bytes))
            last.stored.insert(one.stored.begin(), one.stored.end());
    uint64_t met_from = 0;
    for (const kwemu::Sharing::Watched& one : sharing.words) {
        met_from = sharing.rows.size();
        for (uint32_t who : one.loaded) add(one.word, who, kwemu::kLoad);
        for (uint32_t who : one.stored) add(one.word, who, kwemu::kStore);
    }
    uint64_t met = last.word;
    *result = {
        sharing.rows.data(), sharing.rows.size(), met_from,
        sharing.pc,          sharing.other_pc,    met == ~0ull ? 0 : low + 4 * met};
}
#pragma GCC visibility pop
