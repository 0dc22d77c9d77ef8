// From single accesses to a warp's requests, and what each costs.
//
// A block's threads run one after another between two barriers. An access joins the
// request that the lanes before it made at the same instruction as often before: lanes in
// lockstep follow each other along the list of requests, and only those that diverge have
// to look for theirs.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "trace.h"

namespace kwemu {

namespace {

// How many different values there are among the first `count`; lanes mostly come in order.
unsigned distinct(uint64_t* values, unsigned count) {
    unsigned different = 1;
    bool rising = true;
    for (unsigned i = 1; i < count; ++i) {
        rising = rising && values[i] >= values[i - 1];
        different += values[i] != values[i - 1];
    }
    if (rising) return different;
    std::sort(values, values + count);
    different = 1;
    for (unsigned i = 1; i < count; ++i) different += values[i] != values[i - 1];
    return different;
}

// The most different words that any of the 32 banks must deliver.
unsigned deepest_bank(const uint64_t* words, unsigned count) {
    uint64_t seen[32][32];
    unsigned char depth[32] = {};
    unsigned deepest = 0;
    for (unsigned i = 0; i < count; ++i) {
        unsigned bank = words[i] & 31;
        unsigned at = 0;
        while (at < depth[bank] && seen[bank][at] != words[i]) ++at;
        if (at < depth[bank]) continue;
        seen[bank][depth[bank]++] = words[i];
        if (depth[bank] > deepest) deepest = depth[bank];
    }
    return deepest;
}

// Lanes that a 64-bit access serves together are 16, of a 128-bit access 8.
unsigned wavefronts_of(const Request& request, unsigned width, uint64_t base) {
    unsigned words_each = width <= 4 ? 1 : width / 4;
    unsigned lanes_together = 32 / words_each;
    unsigned total = 0;
    for (unsigned first = 0; first < 32; first += lanes_together) {
        uint64_t words[32];
        unsigned count = 0;
        for (unsigned lane = first; lane < first + lanes_together; ++lane) {
            if (!(request.mask >> lane & 1)) continue;
            uint64_t word = (request.address[lane] - base) >> 2;
            for (unsigned i = 0; i < words_each; ++i) words[count++] = word + i;
        }
        if (count) total += deepest_bank(words, count);
    }
    return total;
}

}  // namespace

Tracer::Tracer(Trace* of, Worker* on) : trace(of), worker(on), windows(kMaxWarps) {
    const Spec& spec = worker->launch->spec;
    text_begin = spec.text_begin;
    site_of.assign(spec.text_end - spec.text_begin + 1, kNone);
    static_bytes = spec.tls_bytes;
    shared_bytes = spec.shared_bytes;
    dynamic_low = reinterpret_cast<uint64_t>(worker->dynamic_shared);
    struct {
        size_t module, offset;
    } place{spec.tls_module, 0};
    extern void* tls_address(void*);
    if (static_bytes) static_low = reinterpret_cast<uint64_t>(tls_address(&place));
    shared_words = (static_bytes + 3) / 4 + (shared_bytes + 3) / 4 + 8;
    void* memory = mmap(nullptr, shared_words * sizeof(Cell), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    shared_cells = memory == MAP_FAILED ? nullptr : static_cast<Cell*>(memory);
    std::vector<char*> sorted = worker->stacks;
    std::sort(sorted.begin(), sorted.end());
    for (char* stack : sorted) {
        uint64_t low = reinterpret_cast<uint64_t>(stack);
        if (stacks.empty() || stacks.back().second != low) stacks.push_back({low, low});
        stacks.back().second = low + kStackBytes;
    }
}

Tracer::~Tracer() {
    if (shared_cells) munmap(shared_cells, shared_words * sizeof(Cell));
}

void Tracer::begin_block(uint64_t number, uint32_t which) {
    block = number;
    ordinal = which + 1;
    block_tick = ++tick;
    wounded = early_exit = diverged = false;
    left_out.clear();
    block_acquired = 0;
    if (!fenced.empty()) {
        std::fill(fenced.begin(), fenced.end(), 0);
        std::fill(released.begin(), released.end(), 0);
        std::fill(acquired.begin(), acquired.end(), 0);
    }
    std::fill(warp_tick, warp_tick + kMaxWarps, tick);
    std::fill(pair_tick.begin(), pair_tick.end(), 0);
}

void Tracer::end_block() {
    settle();
    for (unsigned warp = 0; warp < kMaxWarps; ++warp) flush(warp);
    if (early_exit && !diverged && !wounded) report(missed);
}

uint32_t Tracer::site(uint64_t pc, int place, unsigned op, unsigned width,
                      uint64_t address) {
    uint32_t* link = &site_of[pc - text_begin];
    while (*link != kNone) {
        Site& known = sites[*link];
        if (known.row.place == place && known.row.width == width && known.row.op == op)
            return *link;
        link = &known.alternative;
    }
    uint32_t number = static_cast<uint32_t>(sites.size());
    *link = number;
    Site fresh{};
    fresh.row.pc = pc - worker->launch->spec.load_address;
    fresh.row.place = place;
    fresh.row.op = op;
    fresh.row.width = width;
    fresh.row.sample = address;
    fresh.row.line = line;
    fresh.alternative = kNone;
    sites.push_back(fresh);
    return number;
}

void Tracer::join(uint32_t number, uint64_t address) {
    unsigned thread = worker->current, lane = thread & 31, bit = 1u << lane;
    Window& window = windows[thread >> 5];
    if (window.count[lane] >= kWindow) window_full(thread >> 5, lane);
    ++window.count[lane];
    uint32_t at = window.cursor[lane];
    if (at < window.used) {
        Request& next = window.requests[at];
        if (next.site == number && !(next.mask & bit) &&
            (next.before == kNone || window.requests[next.before].mask & bit)) {
            next.mask |= bit;
            next.address[lane] = address;
            window.cursor[lane] = static_cast<uint16_t>(at + 1);
            return;
        }
    }
    if (window.chains.size() <= number) window.chains.resize(number + 64);
    Chain& chain = window.chains[number];
    if (chain.window != window.number) {
        chain = {window.number, kNone, kNone, 0};
    } else {
        at = chain.head;
        while (at != kNone && window.requests[at].mask & bit)
            at = window.requests[at].after;
        if (at != kNone) {
            window.requests[at].mask |= bit;
            window.requests[at].address[lane] = address;
            window.cursor[lane] = static_cast<uint16_t>(at + 1);
            return;
        }
    }
    if (window.requests.size() <= window.used)
        window.requests.resize(window.used * 2 + 64);
    at = window.used++;
    Request& fresh = window.requests[at];
    fresh.site = number;
    fresh.mask = bit;
    fresh.before = chain.tail;
    fresh.after = kNone;
    fresh.order = ++order;
    fresh.address[lane] = address;
    if (chain.tail != kNone) window.requests[chain.tail].after = at;
    if (chain.head == kNone) chain.head = at;
    chain.tail = at;
    window.cursor[lane] = static_cast<uint16_t>(at + 1);
}

// This lane has run far enough ahead: the others of its warp that can run catch up, and
// then the requests made so far are final. So memory stays bounded in a long loop.
void Tracer::window_full(unsigned warp, unsigned lane) {
    Window& window = windows[warp];
    for (;;) {
        unsigned behind = 0;
        for (unsigned rest = worker->ready[warp]; rest; rest &= rest - 1) {
            unsigned other = __builtin_ctz(rest);
            if (other != lane && window.count[other] < kWindow) behind |= 1u << other;
        }
        if (!behind) {
            flush(warp);
            return;
        }
        worker->switch_to(warp * 32 + __builtin_ctz(behind));
        if (window.count[lane] < kWindow) return;
    }
}

void Tracer::flush(unsigned warp) {
    Window& window = windows[warp];
    if (window.used) {
        unsigned left = worker->warps[warp].exited;
        for (uint32_t i = 0; i < window.used; ++i) {
            const Request& request = window.requests[i];
            Site& site = sites[request.site];
            if (request.mask & left) left_out.push_back(request.site);
            if (early_exit && site.bypassed == barrier_number) bypassed(site);
            if (site.row.logged < trace->spec.log_each &&
                log.size() < trace->spec.log_all) {
                LogRow row{request.site, request.mask,  warp, 0,
                           block,        request.order, {}};
                for (uint32_t b = request.before; b != kNone;
                     b = window.requests[b].before)
                    ++row.occurrence;
                for (unsigned l = 0; l < 32; ++l)
                    if (request.mask >> l & 1) row.address[l] = request.address[l];
                log.push_back(row);
                ++site.row.logged;
            }
            finish(request);
        }
        window.used = 0;
        ++window.number;
    }
    memset(window.cursor, 0, sizeof window.cursor);
    memset(window.count, 0, sizeof window.count);
}

void Tracer::finish(const Request& request) {
    SiteRow& row = sites[request.site].row;
    unsigned lanes = static_cast<unsigned>(__builtin_popcount(request.mask));
    unsigned bytes = lanes * row.width;
    ++row.requests;
    row.lanes += lanes;
    if (row.place < 0) {
        uint64_t base = row.place == kStaticShared ? static_low : dynamic_low;
        unsigned wavefronts = wavefronts_of(request, row.width, base);
        row.wavefronts += wavefronts;
        row.ideal_wavefronts += std::min(wavefronts, (bytes + 127) / 128);
        return;
    }
    if (trace->regions[row.place].constant) return;
    uint64_t values[32];
    unsigned count = 0;
    for (unsigned rest = request.mask; rest; rest &= rest - 1)
        values[count++] = request.address[__builtin_ctz(rest)] >> 5;
    uint32_t* bits = trace->sectors[row.place];
    uint64_t first = trace->regions[row.place].low >> 5;
    for (unsigned i = 0; bits && i < count; ++i) {
        uint64_t sector = values[i] - first;
        uint32_t bit = 1u << (sector & 31);
        if (!(__atomic_load_n(&bits[sector >> 5], __ATOMIC_RELAXED) & bit))
            __atomic_fetch_or(&bits[sector >> 5], bit, __ATOMIC_RELAXED);
    }
    unsigned sectors = distinct(values, count);
    row.sectors += sectors;
    row.ideal_sectors += std::min(sectors, (bytes + 31) / 32);
}

}  // namespace kwemu
