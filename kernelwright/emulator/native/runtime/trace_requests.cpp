// From single accesses to a warp's requests, and what each costs.
//
// A block's threads run one after another between two barriers. Lanes in lockstep follow
// the first of them along its list of steps; those that go ways of their own are put
// together afterwards, as a GPU would have run them (trace_flow.cpp).
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

// Whether every two lanes whose numbers differ in `bit` read the same place, where both
// read at all.
bool paired(const Request& request, unsigned bit) {
    for (unsigned lane = 0; lane < 32; ++lane) {
        unsigned other = lane ^ bit;
        if (!(request.mask >> lane & request.mask >> other & 1)) continue;
        if (request.address[lane] != request.address[other]) return false;
    }
    return true;
}

// Lanes that a 64-bit access serves together are 16, of a 128-bit access 8. A load serves
// twice as many where neighbours, or next neighbours, read the same throughout the warp:
// so an H200 did in all of 426 patterns of loads, and in none of as many of stores, nor
// of ldmatrix.
unsigned wavefronts_of(const Request& request, unsigned width, unsigned op,
                       uint64_t base) {
    unsigned words_each = width <= 4 ? 1 : width / 4;
    unsigned lanes_together = 32 / words_each;
    if (op == kLoad && words_each > 1 && (paired(request, 1) || paired(request, 2)))
        lanes_together *= 2;
    unsigned total = 0;
    for (unsigned first = 0; first < 32; first += lanes_together) {
        uint64_t words[64];
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

// Sectors that an asynchronous copy of 16 bytes a lane fetches. It goes past the
// first-level cache, and what arrives goes straight to shared memory: a sector whose two
// halves do not lie side by side there as well is fetched once for each. (Of 81 patterns
// on an H200, all.)
unsigned fetched(const Request& request, const uint32_t* to) {
    uint64_t values[32];
    unsigned count = 0;
    for (unsigned rest = request.mask; rest; rest &= rest - 1) {
        unsigned lane = static_cast<unsigned>(__builtin_ctz(rest));
        uint64_t from = request.address[lane];
        uint64_t swapped = (from ^ to[lane]) >> 4 & 1;
        // Shared memory is smaller than 1 MB: the three do not run into each other.
        values[count++] = (from >> 5) << 16 | (to[lane] >> 5 & 0x7fff) << 1 | swapped;
    }
    return distinct(values, count);
}

}  // namespace

Tracer::Tracer(Trace* of, Worker* on) : trace(of), worker(on), windows(kMaxWarps) {
    const Spec& spec = worker->launch->spec;
    text_begin = spec.text_begin;
    site_of.assign(spec.text_end - spec.text_begin + 1, kNone);
    block_of.assign(spec.text_end - spec.text_begin + 1, kNone);
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
}

Tracer::~Tracer() {
    if (shared_cells) munmap(shared_cells, shared_words * sizeof(Cell));
}

void Tracer::begin_block(uint64_t number, uint32_t which) {
    block = number;
    ordinal = which + 1;
    block_tick = ++tick;
    wounded = early_exit = false;
    left_out.clear();
    system_looked = system_acquired = block_acquired = 0;
    std::fill(noticing, noticing + kMaxThreads, kNoScope);
    noticing_count = 0;
    system_fence = device_fence = any_fence = 0;
    if (!fenced.empty()) {
        std::fill(fenced.begin(), fenced.end(), kNoScope);
        std::fill(acquired.begin(), acquired.end(), 0);
        for (Published& each : released) each.clear();
        for (Published& each : warp_released) each.clear();
    }
    for (Window& window : windows)
        for (Lane& lane : window.lanes) {
            lane.last = lane.at = lane.from = kNone;
            lane.turns.clear();
        }
    std::fill(warp_tick, warp_tick + kMaxWarps, tick);
    std::fill(pair_tick.begin(), pair_tick.end(), 0);
}

void Tracer::end_block() {
    settle();
    for (unsigned warp = 0; warp < kMaxWarps; ++warp) flush(warp);
    if (early_exit && !wounded) report_missed();
    uint64_t& busiest = operations[KWEMU_BUSIEST_WARP];
    for (uint64_t& requests : warp_requests) {
        busiest = std::max(busiest, requests);
        requests = 0;
    }
}

uint32_t Tracer::site(uint64_t pc, int place, unsigned op, unsigned width,
                      uint64_t address) {
    uint32_t* link = &site_of[pc - text_begin];
    uint32_t node = kNone;
    while (*link != kNone) {
        Site& known = sites[*link];
        if (known.row.op == op) node = known.node;
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
    fresh.node = node == kNone ? flow.add(true) : node;
    sites.push_back(fresh);
    return number;
}

void Tracer::join(uint32_t number, uint64_t address, uint64_t to) {
    unsigned thread = worker->current;
    Lane& lane = windows[thread >> 5].lanes[thread & 31];
    if (is_full(lane)) window_full(thread >> 5, thread & 31);
    ++lane.accesses;
    bool fixed = to - static_low < static_bytes;
    uint64_t offset = to - (fixed ? static_low : dynamic_low);
    step(sites[number].node, number, address, static_cast<uint32_t>(offset));
}

// This lane has run far enough ahead: the others of its warp that can run catch up, and
// then what is known of all of them is made into requests. So memory stays bounded.
void Tracer::window_full(unsigned warp, unsigned lane) {
    Window& window = windows[warp];
    while (is_full(window.lanes[lane])) {
        unsigned behind = 0;
        for (unsigned rest = worker->ready[warp]; rest; rest &= rest - 1) {
            unsigned other = static_cast<unsigned>(__builtin_ctz(rest));
            if (other != lane && !is_full(window.lanes[other])) behind |= 1u << other;
        }
        if (behind)
            worker->switch_to(warp * 32 + static_cast<unsigned>(__builtin_ctz(behind)));
        else
            drain(warp, false);
        // It may be waiting for another warp: that one gets its turn now and then.
        uint32_t others = worker->warps_ready & ~(1u << warp);
        if (behind || !others || ++window.drained % 8) continue;
        uint32_t later = others & ~((2u << warp) - 1);
        unsigned next = static_cast<unsigned>(__builtin_ctz(later ? later : others));
        worker->switch_to(next * 32 +
                          static_cast<unsigned>(__builtin_ctz(worker->ready[next])));
    }
}

// All lanes that have not returned are at one place.
void Tracer::flush(unsigned warp) {
    Window& window = windows[warp];
    ++window.met;
    if (window.leader == kNone && !window.apart) return;
    drain(warp, true);
    ++window.stores;
    window.times.clear();
}

// Makes requests of the steps so far: of all of them where the warp has met, else of
// those that can be placed before what is still to come.
void Tracer::drain(unsigned warp, bool met) {
    Window& window = windows[warp];
    bool done = true;
    if (!window.apart) {
        for (Lane& lane : window.lanes)
            if (lane.followed) lane.last = window.steps[lane.followed - 1].node;
        for (uint32_t i = 0; i < window.used; ++i) {
            const bool bound = i < window.destination.size();
            finish(window.requests[i], bound ? window.destination[i].data() : nullptr,
                   warp);
        }
    } else {
        done = replay(warp, met);
    }
    window.steps.clear();
    window.used = 0;
    window.destination.clear();
    window.leader = kNone;
    if (!done) return;
    window.apart = false;
    for (Lane& lane : window.lanes) {
        lane.followed = lane.taken = lane.accesses = 0;
        lane.apart = false;
        lane.own.clear();
        if (met) lane.rounds.clear();
    }
}

// A request is complete.
void Tracer::finish(const Request& request, const uint32_t* to, unsigned warp) {
    Site& site = sites[request.site];
    Window& window = windows[warp];
    if (request.mask & worker->warps[warp].exited) left_out.push_back(request.site);
    if (window.times.size() <= request.site) window.times.resize(sites.size());
    uint32_t occurrence = window.times[request.site]++;
    if (site.row.logged < trace->spec.log_each && log.size() < trace->spec.log_all) {
        LogRow row{request.site, request.mask,  warp, occurrence,
                   block,        request.order, {}};
        for (unsigned l = 0; l < 32; ++l)
            if (request.mask >> l & 1) row.address[l] = request.address[l];
        log.push_back(row);
        ++site.row.logged;
    }
    if (site.row.op != kLoad && site.row.op != kMatrixLoad) ++window.stores;
    compare(request, site, warp);
    warp_requests[warp] += site.row.place >= 0;
    count(request, to, site.row);
}

// Whether the warp reads again what it has just read here: a compiler may keep that.
void Tracer::compare(const Request& request, Site& site, unsigned warp) {
    uint64_t stores = windows[warp].stores;
    if (site.row.op != kLoad || site.row.place < 0) return;
    bool again = site.last_stores == stores && site.last_warp == warp &&
                 site.last_block == block && !(request.mask & ~site.last_mask);
    for (unsigned rest = request.mask; again && rest; rest &= rest - 1) {
        unsigned lane = static_cast<unsigned>(__builtin_ctz(rest));
        again = request.address[lane] == site.last[lane];
    }
    if (again) {
        ++site.row.repeats;
        return;
    }
    site.last_stores = stores;
    site.last_warp = warp;
    site.last_block = block;
    site.last_mask = request.mask;
    memcpy(site.last, request.address, sizeof site.last);
}

void Tracer::count(const Request& request, const uint32_t* to, SiteRow& row) {
    unsigned lanes = static_cast<unsigned>(__builtin_popcount(request.mask));
    unsigned bytes = lanes * row.width;
    ++row.requests;
    row.lanes += lanes;
    if (row.place < 0) {
        uint64_t base = row.place == kStaticShared ? static_low : dynamic_low;
        unsigned wavefronts = wavefronts_of(request, row.width, row.op, base);
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
    if (row.op == kAsyncLoad && row.width == 16 && to) sectors = fetched(request, to);
    row.sectors += sectors;
    row.ideal_sectors += std::min(sectors, (bytes + 31) / 32);
}

}  // namespace kwemu
