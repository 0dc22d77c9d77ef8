// What the traced build records: every access of every CUDA thread, gathered into the
// requests that a warp makes of the memory, and a shadow of memory that knows who touched
// each word last. One Tracer a worker, alive for one launch.
#pragma once

#include <cstdint>
#include <vector>

#include "state.h"

namespace kwemu {

enum AccessOp : uint32_t { kLoad, kStore, kAtomic, kAsyncLoad, kAsyncStore };

// Where an access went: a region's number, or one of these.
enum Place : int32_t {
    kStaticShared = -1,
    kDynamicShared_ = -2,
    kNowhere = 0x7fffffff
};

enum ProblemKind : int32_t {
    kRace = 1,
    kOutOfBounds,
    kMisaligned,
    kUnwritten,
    kDivergentBarrier,
    kAbsentLane,
    kEarlyExit,
};

// Memory that a launch may touch. Python knows this layout (tracing.py).
struct Region {
    uint64_t low, high;
    uint32_t constant;   // read through the constant cache: no sectors
    uint32_t unwritten;  // nobody has written it before the launch
};

// Python knows this layout (tracing.py).
struct TraceSpec {
    const Region* regions;
    const uint64_t* blocks;   // which blocks run, in order
    const uint8_t* tls_kind;  // for each byte: 0 nobody's, 1 shared, 2 not the author's
    uint64_t image_low, image_high;
    uint32_t region_count;
    uint32_t block_count;
    uint32_t log_each;  // how many requests are kept whole, for each site
    uint32_t log_all;
};

// One access in the source, as far as it touches one place. Python knows this layout.
struct SiteRow {
    uint64_t pc;  // just behind the access, relative to the load address
    int32_t place;
    uint32_t op;
    uint32_t width;
    uint32_t logged;
    int32_t line;  // where the access itself said so; else 0
    uint32_t unused;
    uint64_t sample;  // an address that it touched
    uint64_t requests, lanes, sectors, ideal_sectors, wavefronts, ideal_wavefronts;
};

// One request, whole. Python knows this layout.
struct LogRow {
    uint32_t site;
    uint32_t mask;
    uint32_t warp;
    uint32_t occurrence;
    uint64_t block;
    uint64_t order;
    uint64_t address[32];
};

// Python knows this layout.
struct ProblemRow {
    int32_t kind;
    int32_t place;
    int32_t line, other_line;  // 0: found through the pc
    uint64_t pc, other_pc;
    uint64_t address;
    uint64_t block, other_block;
    uint32_t thread, other_thread;
    uint32_t op, other_op;
    uint32_t width;
    uint32_t mask;
    uint64_t count;
};

struct TraceResult {
    const SiteRow* sites;
    const LogRow* log;
    const ProblemRow* problems;
    uint64_t site_count, log_count, problem_count;
    uint64_t barriers;  // of all blocks together
    uint64_t static_low, dynamic_low;
};

// Who touched a word, and when: `who` is the block's number in this launch (from 1) and
// the thread, `tick` counts what orders threads (barriers, warp synchronisation).
struct Touch {
    uint32_t who;
    uint32_t tick;
    uint32_t meta;  // bytes 0-3, all bytes ever written 4-7, atomic 8, pc 9-31
};

// Two readers: with one, a reader of the writer's own warp could hide another.
struct Cell {
    Touch write;
    Touch read[2];
};

struct Trace {
    TraceSpec spec;
    std::vector<Region> regions;
    std::vector<uint64_t> blocks;
    std::vector<uint8_t> tls_kind;
    std::vector<Cell*> cells;        // a shadow for each region, mapped and not touched
    std::vector<uint32_t*> sectors;  // a bit for each 32-byte sector that was touched
    std::vector<struct Tracer*> tracers;
    // What each block published last: behind a fence, and then an atomic.
    struct Published {
        uint64_t order;
        uint32_t tick;
    };
    std::vector<Published> published;
    std::atomic<uint64_t> next_order{1};
    std::atomic_flag lock = ATOMIC_FLAG_INIT;
};

constexpr unsigned kWindow = 256;
constexpr uint32_t kNone = ~0u;

struct Request {
    uint32_t site;
    uint32_t mask;
    uint32_t before;  // the one of the same site before it, in this window
    uint32_t after;
    uint64_t order;
    uint64_t address[32];
};

struct Chain {
    uint32_t window;
    uint32_t head, tail;
    uint32_t length;
};

// The requests of a warp since it last was known to be together.
struct Window {
    std::vector<Request> requests;
    std::vector<Chain> chains;  // by site
    uint32_t number = 1;
    uint32_t used = 0;
    uint16_t cursor[32] = {};
    uint16_t count[32] = {};
};

struct Site {
    SiteRow row;
    uint32_t alternative;  // same instruction, another place or width
    uint64_t bypassed;     // the barrier that somebody left out, having been here
};

// A write over another's value that is a race only if it changes the value: looked at
// after the write has happened, which is when the next access arrives.
struct Pending {
    bool active;
    uint32_t width;
    uint64_t address;
    unsigned char before[16];
    ProblemRow problem;
};

struct Tracer {
    Trace* trace;
    Worker* worker;
    uint64_t static_low = 0, static_bytes = 0, dynamic_low = 0, shared_bytes = 0;
    std::vector<std::pair<uint64_t, uint64_t>> stacks;  // the fibers', joined
    uint64_t text_begin = 0;
    uint32_t last_region = 0;
    uint32_t ordinal = 0;  // of this block, in the launch
    uint64_t block = 0;
    uint32_t tick = 1, block_tick = 1;
    uint32_t warp_tick[kMaxWarps] = {};
    std::vector<uint32_t> pair_tick;  // [warp][lane][lane], made when first needed
    bool wounded =
        false;     // a thread of this block was ended: what follows is its fault
    int line = 0;  // of the access to come, where it says so
    uint64_t order = 0;
    uint64_t barriers = 0;
    Cell* shared_cells = nullptr;
    size_t shared_words = 0;
    Pending pending{};
    std::vector<uint32_t> site_of;  // by offset in the text
    std::vector<Site> sites;
    std::vector<SiteRow> rows;
    std::vector<LogRow> log;
    std::vector<ProblemRow> problems;
    std::vector<uint32_t> left_out;  // sites of threads that returned before a barrier
    uint64_t barrier_number = 0;     // the last at which threads were missing
    int barrier_line = 0;
    bool early_exit = false, diverged = false;
    ProblemRow missed{};  // for the block's end: an early exit
    // Fences: what a thread (or this block) published, and what it has taken notice of.
    std::vector<uint8_t> fenced;
    std::vector<uint64_t> released, acquired;
    std::vector<uint32_t> released_tick;
    uint64_t block_acquired = 0;
    std::vector<Window> windows;

    Tracer(Trace* of, Worker* on);
    ~Tracer();
    void begin_block(uint64_t number, uint32_t which);
    void end_block();
    void barrier();
    void meeting(unsigned warp, unsigned mask, unsigned came, int operation, int line);
    void access(uint64_t address, unsigned width, unsigned op, uint64_t pc);
    void flush(unsigned warp);
    void fence();
    void atomic_seen();
    void copy_arrived(uint64_t address, unsigned width);
    void settle();

  private:
    uint32_t site(uint64_t pc, int place, unsigned op, unsigned width,
                  uint64_t address);
    void join(uint32_t number, uint64_t address);
    void window_full(unsigned warp, unsigned lane);
    void finish(const Request& request);
    void bypassed(const Site& site);
    bool on_stack(uint64_t address) const;
    int shared_nearby(uint64_t address) const;
    int find_region(uint64_t address, unsigned width);
    void touch(Cell* cells, uint64_t address, uint64_t offset, unsigned width,
               unsigned op, uint64_t pc, int place);
    bool ordered(const Touch& before) const;
    void race(const Touch& before, unsigned before_op, uint64_t address, unsigned width,
              unsigned op, uint64_t pc, int place);
    ProblemRow problem(ProblemKind kind, uint64_t address, unsigned width, unsigned op,
                       uint64_t pc, int place);
    void report(const ProblemRow& row);
    [[noreturn]] void end_thread();
};

void trace_begin_block(Worker& worker, uint64_t number, uint32_t which);

}  // namespace kwemu
