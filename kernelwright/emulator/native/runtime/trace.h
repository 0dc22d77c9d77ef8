// What the traced build records: every access of every CUDA thread, gathered into the
// requests that a warp makes of the memory, and a shadow of memory that knows who touched
// each word last. One Tracer a worker, alive for one launch.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_set>
#include <vector>

#include "state.h"

namespace kwemu {

enum AccessOp : uint32_t {
    kLoad,
    kStore,
    kAtomic,
    kAsyncLoad,
    kAsyncStore,
    kMatrixLoad,  // a row of ldmatrix
};

// Where an access went: a region's number, or one of these.
enum Place : int32_t {
    kStaticShared = -1,
    kDynamicShared_ = -2,
    kNowhere = 0x7fffffff
};

// Whom a fence or an atomic is for: its block's threads, all of its rank's, or all ranks'.
enum Scope : uint8_t { kNoScope, kBlockScope, kDeviceScope, kSystemScope };

enum ProblemKind : int32_t {
    kRace = 1,
    kOutOfBounds,
    kMisaligned,
    kUnwritten,
    kDivergentBarrier,
    kAbsentLane,
    kEarlyExit,
    kOwnArray,
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
    // Where a thread's own arrays are indexed, in rising order: each a line and, in the
    // lower half, the column of a bracket.
    const uint64_t* subscripts;
    uint64_t image_low, image_high;
    uint32_t region_count;
    uint32_t block_count;
    uint32_t log_each;  // how many requests are kept whole, for each site
    uint32_t log_all;
    uint32_t subscript_count;
};

// One access in the source, as far as it touches one place. Python knows this layout.
struct SiteRow {
    uint64_t pc;  // just behind the access, relative to the load address
    int32_t place;
    uint32_t op;
    uint32_t width;
    uint32_t logged;
    int32_t line;     // where the access itself said so; else 0
    uint32_t uneven;  // in a loop that lanes of a warp leave in different rounds
    uint64_t sample;  // an address that it touched
    uint64_t requests, lanes, sectors, ideal_sectors, wavefronts, ideal_wavefronts;
    uint64_t repeats;  // requests for what the warp had just read here
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
    // Of a thread's own array: which of the subscripts, and how many elements there are
    // for it. `address` is the index then.
    uint32_t subscript, extent;
    // A race between blocks for want of a fence: 1 of wider scope, 2 behind an atomic.
    uint64_t narrow;
    uint64_t count;
};

struct TraceResult {
    const SiteRow* sites;
    const LogRow* log;
    const ProblemRow* problems;
    uint64_t site_count, log_count, problem_count;
    uint64_t static_low, dynamic_low;
    const uint64_t* operations;  // by their number; of all warps together
};

// One thread that touched a watched word of a region. Python knows this layout.
struct SharingRow {
    uint64_t address;
    uint64_t block;
    uint32_t thread;
    uint32_t op;
};

// Who touched the same words of one region. Python knows this layout.
struct SharingResult {
    const SharingRow* rows;
    uint64_t row_count;
    uint64_t met_from;      // the first row of the place where stores met
    uint64_t pc, other_pc;  // of two stores of different threads that met
    uint64_t address;       // where; 0 if none did
};

// Who touched a word, and when: `who` is the block's number in this launch (from 1) and
// the thread, `tick` counts what orders threads (barriers, warp synchronisation).
struct Touch {
    uint32_t who;
    uint32_t tick;
    // Bytes 0-3, all bytes ever written 4-7, an atomic's Scope 8-9, pc 10-31.
    uint32_t meta;
};

// Two readers: with one, a reader of the writer's own warp could hide another.
struct Cell {
    Touch write;
    Touch read[2];
};

// What somebody published, and when: at each `order`, all that was done up to a tick. What
// was published first stays so when more is, so one that read the first sign has it.
class Published {
  public:
    void add(uint64_t order, uint32_t tick) {
        // A sign that tells of nothing new is what a thread gives that spins.
        if (steps.empty() || steps.back().tick < tick) steps.push_back({order, tick});
    }
    // Was it there for one who took notice at `noticed`?
    bool covers(uint32_t tick, uint64_t noticed) const;
    void clear() { steps.clear(); }

  private:
    struct Step {
        uint64_t order;
        uint32_t tick;
    };
    std::vector<Step> steps;  // both rise
};

// Who loads and stores the same: of a region a few words are watched, at both ends and
// between, and then the lowest that a second thread stored to.
struct Sharing {
    static constexpr unsigned kFixed = 5;
    struct Watched {
        uint64_t word = ~0ull;
        uint32_t bytes =
            1;  // of the word's four; what has smaller elements is told apart
        std::unordered_set<uint32_t> loaded, stored;  // by whom, as in Touch
    };
    Watched words[kFixed + 1];
    std::vector<SharingRow> rows;
    uint64_t pc = 0, other_pc = 0;
    std::atomic_flag lock = ATOMIC_FLAG_INIT;

    explicit Sharing(uint64_t count);
    bool watches(uint64_t word) const;
};

struct Trace {
    TraceSpec spec;
    std::vector<Region> regions;
    std::vector<uint64_t> blocks;
    std::vector<uint64_t> subscripts;
    std::vector<uint8_t> tls_kind;
    std::vector<Cell*> cells;        // a shadow for each region, mapped and not touched
    std::vector<uint32_t*> sectors;  // a bit for each 32-byte sector that was touched
    std::vector<std::unique_ptr<Sharing>> sharing;  // of each region
    std::vector<struct Tracer*> tracers;
    // What each block published: behind a fence, and then an atomic. And what it would
    // have, had its fences of block scope been wider. Other workers read it.
    struct OfBlock {
        Published by_system, by_device, by_any;
    };
    std::vector<OfBlock> published;
    std::atomic_flag publishing = ATOMIC_FLAG_INIT;
    std::atomic<uint64_t> next_order{1};
    std::atomic_flag lock = ATOMIC_FLAG_INIT;
    uint64_t blocks_of_rank = 1;

    // Of a block, by its number in this launch, from 1.
    uint64_t rank_of(uint32_t ordinal) const {
        return blocks[ordinal - 1] / blocks_of_rank;
    }
};

// A lane waits for its warp where it has so many accesses, or so many steps in all, that
// are in no request yet.
constexpr unsigned kWindow = 256;
constexpr unsigned kSteps = 4096;
constexpr uint32_t kNone = ~0u;

struct Request {
    uint32_t site;
    uint32_t mask;
    uint64_t order;
    uint64_t address[32];
};

// A step of a lane: an access, or the entry into a stretch of code without a branch.
// `node` says which, in the Flow; `slot` is the request that an access is part of.
struct Step {
    uint32_t node;
    uint32_t slot;
};

// How often a lane came by a loop's head without a step being kept of it.
struct Turns {
    uint32_t head;
    uint32_t count;
    bool entered;  // it came from outside first, else it was inside already
};

// A step of a lane that went its own way.
struct OwnStep {
    uint64_t address;
    uint32_t node;
    uint32_t site;  // kNone: no access
    uint32_t to;    // where an asynchronous load puts its bytes, in shared memory
    Turns turns;    // where no step was kept of them; else their count is 0
};

struct Lane {
    uint32_t at = kNone;    // the node that it went through last, kept or not
    uint32_t from = kNone;  // the one before
    uint32_t followed = 0;  // steps that were the same as the leader's
    uint32_t taken = 0;     // steps that are replayed already
    uint32_t accesses = 0;  // in no request yet
    uint32_t last = kNone;  // the node of the step that it took before these
    bool apart = false;
    uint32_t met = 0;          // how often its warp had met when it took these turns
    std::vector<Turns> turns;  // since its last step, in loops without an access
    std::vector<OwnStep> own;  // after those that it followed
    std::vector<uint32_t> rounds;  // of each loop, by the node that is its head
};

// The steps of a warp since it last was known to be together. The first lane to run
// leads; while the others take the same steps there is one list for all.
struct Window {
    std::vector<Request> requests;
    std::vector<Step> steps;
    std::vector<std::array<uint32_t, 32>> destination;  // of asynchronous loads
    std::vector<uint32_t> times;                        // by site: requests so far
    Lane lanes[32];
    uint32_t used = 0;
    uint32_t leader = kNone;
    uint32_t drained = 0;
    bool apart = false;
    uint32_t met = 0;
    uint64_t stores = 1;  // and times that it met: after any of them memory may differ
};

// The kernel's control flow, as far as threads were seen to go. Of two lanes the one
// runs first that is earlier in it: in an earlier round of a loop that both are in, or
// else before the other on every way without a step back. So lanes that part meet again
// as soon as they can, and one that left a loop waits for those that are still in it.
//
// Only accesses have to be put in order, so a loop without any is passed by: no step in it
// is kept. Its turns are counted, for it may turn out to have one.
class Flow {
  public:
    uint32_t add(bool access);
    void connect(uint32_t from, uint32_t to);
    int compare(uint32_t a, const Lane& one, uint32_t b, const Lane& other);
    // Whether a step need not be kept; if so, the lane has made it.
    bool passes(Window& window, Lane& lane, uint32_t to);
    // Whether a step to a node must be kept: to an access, or a loop with one.
    bool matters(uint32_t node) const;
    // Of a node that nobody left yet it is not known whether it leads back.
    bool may_stay_in(uint32_t head, uint32_t from, uint32_t to) const;
    // A lane goes on from one node to the next, or has taken turns of a loop meanwhile.
    void step(Lane& lane, uint32_t from, uint32_t to, const Turns& turns);
    // A lane waits at `to`, having come from `from`, while others are at `node`.
    void waits(uint32_t from, uint32_t to, uint32_t node);
    bool is_uneven(uint32_t node);
    // Whether all who come from `from` go through `node`, and none of them back.
    bool lies_behind(uint32_t node, uint32_t from) const;
    bool ends(uint32_t node) const { return nodes[node].after.empty(); }

  private:
    struct Node {
        std::vector<uint32_t> after, before;
        std::vector<uint32_t> heads;  // of the loops around it, the outermost first
        uint32_t inner = kNone;       // the innermost, from which it leads back
        uint32_t place = 0;           // in an order without steps back
        bool access = false;
        bool is_head = false;
        bool barren = false;  // of a loop's head: there is no access in the loop
        bool uneven = false;  // of a loop's head: lanes left it apart
    };
    // What is known of a step from one node to the next, for those made often.
    struct Known {
        uint32_t from = kNone, to = kNone;
        enum { kKept, kPlain, kEnters, kTurns } kind = kKept;
    };
    static constexpr uint32_t kKnown = 1024;
    std::vector<Node> nodes;
    std::vector<Known> known = std::vector<Known>(kKnown);
    bool stale = true;  // steps were seen that loops and places do not know yet
    uint32_t made = 0;  // steps since these were found
    void changed();
    Known& known_step(uint32_t from, uint32_t to);
    void compute();
    void find_barren_loops();
    std::vector<std::pair<uint32_t, uint32_t>> put_in_order();
    void add_ways_out(std::vector<uint32_t>& body) const;
    bool is_in(uint32_t node, uint32_t head) const;
    enum Ways { kNoWay, kSomeWays, kAllWays };
    Ways ways(uint32_t from, uint32_t to) const;
};

struct Site {
    SiteRow row;
    uint32_t alternative;  // same instruction, another place or width
    uint32_t node;         // in the Flow: one for an instruction and operation
    // The last request, and what the warp had stored by then: is the next one the same?
    uint64_t last_block;
    uint64_t last_stores;
    uint32_t last_warp;
    uint32_t last_mask;
    uint64_t last[32];
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
    Scope scope = kDeviceScope;  // likewise: of the atomic to come
    uint64_t destination = 0;    // of the asynchronous load to come
    uint64_t order = 0;
    uint64_t operations[KWEMU_OPERATION_COUNT] = {};
    uint64_t warp_requests[kMaxWarps] = {};  // of global memory, in this block
    Cell* shared_cells = nullptr;
    size_t shared_words = 0;
    Pending pending{};
    std::vector<uint32_t> site_of;   // by offset in the text
    std::vector<uint32_t> block_of;  // likewise: nodes
    Flow flow;
    std::vector<Site> sites;
    std::vector<SiteRow> rows;
    std::vector<LogRow> log;
    std::vector<ProblemRow> problems;
    std::vector<uint32_t> left_out;  // sites of threads that returned before a barrier
    bool early_exit = false;
    // For the block's end, when it is known where the barrier leads: who was missing, where
    // the others waited, and where those missing had been last.
    ProblemRow missed{};
    uint32_t waited_at = kNone;
    std::vector<uint32_t> missed_sites, last_nodes;
    // Fences: what a thread (or this block) published, and what it has taken notice of.
    std::vector<Scope> fenced;
    std::vector<uint64_t> acquired;
    std::vector<Published> released;
    // A lane also publishes what the others of its warp did before they last met.
    std::vector<Published> warp_released;
    // When a thread of this block last called a fence: for other ranks too, for other
    // blocks, or any.
    uint32_t system_fence = 0, device_fence = 0, any_fence = 0;
    // When this block last took notice of what others published, by such an atomic; of
    // other ranks when it looked, and when it had it, behind a fence.
    uint64_t system_looked = 0, system_acquired = 0, block_acquired = 0;
    // Whose atomic is under way, as it was seen last, and how many there are of them.
    Scope noticing[kMaxThreads] = {};
    unsigned noticing_count = 0;
    std::vector<Window> windows;

    Tracer(Trace* of, Worker* on);
    ~Tracer();
    void begin_block(uint64_t number, uint32_t which);
    void end_block();
    void barrier();
    void meeting(unsigned warp, unsigned mask, unsigned came, int operation, int line);
    void access(uint64_t address, unsigned width, unsigned op, uint64_t pc);
    void copy(uint64_t to, uint64_t from, unsigned size, unsigned valid, uint64_t pc,
              int from_line);
    void enter(uint64_t pc);
    void flush(unsigned warp);
    void fence(Scope reach);
    void own_array(uint64_t at, uint64_t index, uint32_t extent, uint64_t pc);
    void atomic_seen(Scope reach);
    void acquire(Scope reach, uint64_t now);
    void take_notice(unsigned thread);
    void copy_arrived(uint64_t address, unsigned width);
    void settle();

  private:
    uint32_t site(uint64_t pc, int place, unsigned op, unsigned width,
                  uint64_t address);
    void join(uint32_t number, uint64_t address, uint64_t to);
    void step(uint32_t node, uint32_t site, uint64_t address, uint32_t to);
    void keep_turns(Window& window, Lane& lane, uint32_t to);
    bool is_full(const Lane& lane) const;
    void window_full(unsigned warp, unsigned lane);
    void drain(unsigned warp, bool met);
    uint32_t next_node(const Window& window, unsigned lane) const;
    bool replay(unsigned warp, bool met);
    uint32_t first_of(const Window& window, uint32_t lanes);
    void keep_rest(Window& window);
    void take(unsigned warp, uint32_t mask);
    void finish(const Request& request, const uint32_t* to, unsigned warp);
    void count(const Request& request, const uint32_t* to, SiteRow& row);
    void compare(const Request& request, Site& site, unsigned warp);
    void access(uint64_t address, unsigned width, unsigned extent, unsigned op,
                uint64_t pc);
    void last_node(const Lane& lane);
    void report_missed();
    bool on_own_stack(uint64_t address) const;
    int shared_nearby(uint64_t address) const;
    int find_region(uint64_t address, unsigned width);
    void touch(Cell* cells, uint64_t address, uint64_t offset, unsigned width,
               unsigned op, uint64_t pc, int place, Scope reach);
    bool reaches(Scope reach, uint32_t ordinal_of_other) const;
    uint64_t pc_of(const Touch& before) const;
    void share(const Touch& before, bool again, uint64_t word, unsigned mask,
               unsigned op, uint64_t pc, int place);
    bool ordered(const Touch& before) const;
    bool ordered_but_for_scope(const Touch& before) const;
    bool ordered_but_for_fence(const Touch& before) const;
    bool handed_over(const Touch& before) const;
    void race(const Touch& before, unsigned before_op, uint64_t address, unsigned width,
              unsigned op, uint64_t pc, int place);
    ProblemRow problem(ProblemKind kind, uint64_t address, unsigned width, unsigned op,
                       uint64_t pc, int place);
    void report(const ProblemRow& row);
    [[noreturn]] void end_thread();
};

void trace_begin_block(Worker& worker, uint64_t number, uint32_t which);

}  // namespace kwemu
