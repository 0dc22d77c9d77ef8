// The pool of workers, the queue of launches, and the watchdog.
#include <ctime>
#include <cstring>
#include <cxxabi.h>
#include <deque>
#include <link.h>
#include <new>

#include "state.h"
#include "trace.h"

namespace kwemu {

namespace {

struct Pool {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t work;
    pthread_cond_t done;
    pthread_cond_t watch;
    std::deque<Launch*> queue;
    std::vector<Launch*> active;
    std::vector<Worker*> workers;
    bool watching = false;

    Pool() {
        pthread_condattr_t monotonic;
        pthread_condattr_init(&monotonic);
        pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
        pthread_cond_init(&work, &monotonic);
        pthread_cond_init(&done, &monotonic);
        pthread_cond_init(&watch, &monotonic);
    }
};

// Never destroyed: workers may still wait in it when the process ends. In a forked child
// the parent's threads do not exist, so the child makes a new one.
Pool* pool = nullptr;
pthread_once_t once = PTHREAD_ONCE_INIT;

struct Guard {
    explicit Guard(Pool* p) : pool(p) { pthread_mutex_lock(&pool->mutex); }
    ~Guard() { pthread_mutex_unlock(&pool->mutex); }
    Pool* pool;
};

timespec moment(double seconds) {
    timespec time;
    time.tv_sec = static_cast<time_t>(seconds);
    time.tv_nsec =
        static_cast<long>((seconds - static_cast<double>(time.tv_sec)) * 1e9);
    return time;
}

bool exhausted(const Launch* launch) {
    return launch->next_block.load() >= launch->blocks ||
           launch->abandon.load() != kFine;
}

// Whether the launch that is first has all the workers that it asked for.
bool is_staffed(const Launch* launch) {
    return launch->workers >= launch->most_workers && !exhausted(launch);
}

void* work(void* argument) {
    Worker* worker = static_cast<Worker*>(argument);
    Pool* mine = pool;
    self = worker;
    serve_worker_signals(worker);
    pthread_mutex_lock(&mine->mutex);
    for (;;) {
        while (mine->queue.empty() || is_staffed(mine->queue.front()))
            pthread_cond_wait(&mine->work, &mine->mutex);
        Launch* launch = mine->queue.front();
        if (!exhausted(launch)) {
            ++launch->workers;
            if (launch->started == 0) launch->started = now();
            pthread_mutex_unlock(&mine->mutex);
            worker->run_launch(launch);
            pthread_mutex_lock(&mine->mutex);
            --launch->workers;
        }
        if (!mine->queue.empty() && mine->queue.front() == launch &&
            exhausted(launch)) {
            mine->queue.pop_front();
            launch->queued = false;
            if (!mine->queue.empty()) pthread_cond_broadcast(&mine->work);
        }
        if (!launch->queued && launch->workers == 0)
            pthread_cond_broadcast(&mine->done);
    }
}

// Once a millisecond, while anything runs: has a worker been in one fiber since the last
// look, let another have its turn; is a launch past its deadline, make its workers leave.
// Five times as often while somebody spins: each of the waiting may have to be asked.
void* watch(void*) {
    Pool* mine = pool;
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, nullptr);
    pthread_mutex_lock(&mine->mutex);
    double idle_since = now();
    bool spinning = false;
    for (;;) {
        if (!mine->active.empty()) idle_since = now();
        if (now() - idle_since > 0.05) {
            mine->watching = false;
            pthread_cond_wait(&mine->watch, &mine->mutex);
            mine->watching = true;
            idle_since = now();
        }
        pthread_mutex_unlock(&mine->mutex);
        timespec tick{0, spinning ? 200000 : 1000000};
        nanosleep(&tick, nullptr);
        pthread_mutex_lock(&mine->mutex);
        double time = now();
        for (Launch* launch : mine->active) {
            double deadline = launch->spec.deadline_s;
            int running = kFine;
            if (deadline > 0 && launch->started > 0 &&
                time - launch->started > deadline)
                launch->abandon.compare_exchange_strong(running, kTimeout);
        }
        spinning = false;
        for (Worker* worker : mine->workers) {
            if (!worker->in_fibers) continue;
            uint64_t switches = *const_cast<volatile uint64_t*>(&worker->switches);
            Launch* launch = *const_cast<Launch* volatile*>(&worker->launch);
            bool leave = launch != nullptr && launch->abandon.load() != kFine;
            if (leave || switches == worker->seen_switches)
                pthread_kill(worker->handle, kPreempt), spinning = true;
            worker->seen_switches = switches;
        }
    }
}

void start_thread(pthread_t* handle, void* (*body)(void*), void* argument) {
    // No signal may reach the new thread before it has chosen its own mask.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 256 * 1024);
    if (pthread_create(handle, &attributes, body, argument) != 0) *handle = 0;
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// The stacks of the parent's workers are mapped in the child too: a new worker that
// takes them over wastes neither the memory nor the mappings.
void remake_in_child() {
    Pool* before = pool;
    if (before == nullptr) return;
    Pool* fresh = new Pool;
    for (Worker* old : before->workers) {
        old->in_fibers = old->locked = false;
        old->launch = nullptr;
        old->handle = 0;
        fresh->workers.push_back(old);
    }
    self = nullptr;
    pool = fresh;
}

void before_fork() {
    if (pool != nullptr) pthread_mutex_lock(&pool->mutex);
}

void after_fork() {
    if (pool != nullptr) pthread_mutex_unlock(&pool->mutex);
}

void make_pool() {
    pool = new Pool;
    pthread_atfork(before_fork, after_fork, remake_in_child);
}

bool staff(Pool* p, unsigned wanted) {
    while (p->workers.size() < wanted) p->workers.push_back(new Worker);
    unsigned running = 0;
    for (Worker* worker : p->workers) {
        if (worker->handle == 0 && running < wanted)
            start_thread(&worker->handle, work, worker);
        running += worker->handle != 0;
    }
    return running != 0;
}

}  // namespace

double now() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

void Worker::run_launch(Launch* task) {
    launch = task;
    ensure_stacks(task->spec.block[0] * task->spec.block[1] * task->spec.block[2]);
    while (task->abandon.load(std::memory_order_relaxed) == kFine) {
        uint64_t number = task->next_block.fetch_add(1);
        if (number >= task->blocks) break;
        run_block(number);
    }
    tracer = nullptr;
    launch = nullptr;
}

void Worker::run_block(uint64_t number) {
    const Spec& spec = launch->spec;
    uint32_t which = static_cast<uint32_t>(number);
    if (spec.trace) number = static_cast<Trace*>(spec.trace)->blocks[which];
    const uint64_t all = number;
    rank = static_cast<unsigned>(number / spec.blocks_of_rank());
    arguments = spec.arguments + static_cast<size_t>(rank) * spec.argument_count;
    number %= spec.blocks_of_rank();
    block[0] = static_cast<unsigned>(number % spec.grid[0]);
    block[1] = static_cast<unsigned>(number / spec.grid[0] % spec.grid[1]);
    block[2] = static_cast<unsigned>(number / spec.grid[0] / spec.grid[1]);
    begin_block();
    if (stacks.size() < threads || dynamic_shared == nullptr) {
        current = 0;
        if (claim_outcome(kTrap, 0))
            strcpy(launch->outcome.text, "no memory for stacks");
        return;
    }
    if (spec.poison) {
        // What a block finds in shared memory is anything: never the zeros, or the last
        // block's values, that would hide a missing initialisation.
        struct {
            size_t module, offset;
        } place{spec.tls_module, 0};
        extern void* tls_address(void*);
        if (spec.tls_bytes) memset(tls_address(&place), 0xff, spec.tls_bytes);
        memset(dynamic_shared, 0xff, spec.shared_bytes);
    }
    if (spec.trace) trace_begin_block(*this, all, which);
    current = 0;
    take_stack(0);
    ++switches;
    in_fibers = true;
    kwemu_switch(&scheduler_sp, sp[0]);
    in_fibers = false;
    locked = false;
    if (tracer) tracer->end_block();
    if (end == kDeadlock && claim_outcome(kDeadlock, current)) describe_waiters();
}

extern "C" void* __tls_get_addr(void*);
void* tls_address(void* place) {
    return __tls_get_addr(place);
}

}  // namespace kwemu

using namespace kwemu;

#pragma GCC visibility push(default)
extern "C" {

Launch* kwemu_launch_start(const Spec* spec, unsigned threads) {
    pthread_once(&once, make_pool);
    install_handlers();
    Launch* launch = new Launch;
    launch->spec = *spec;
    launch->blocks = spec->blocks_of_rank() * spec->ranks;
    launch->most_workers = threads;
    if (spec->trace) {
        Trace* trace = static_cast<Trace*>(spec->trace);
        trace->blocks_of_rank = spec->blocks_of_rank();
        launch->blocks = trace->blocks.size();
    }
    Guard guard(pool);
    if (!staff(pool, threads)) {
        delete launch;
        return nullptr;
    }
    pool->queue.push_back(launch);
    pool->active.push_back(launch);
    if (launch->blocks == 1) {
        pthread_cond_signal(&pool->work);
    } else {
        pthread_cond_broadcast(&pool->work);
    }
    static Pool* watched = nullptr;
    if (watched != pool) {
        watched = pool;
        pool->watching = true;
        pthread_t watchdog;
        start_thread(&watchdog, watch, nullptr);
    } else if (!pool->watching) {
        pthread_cond_signal(&pool->watch);
    }
    return launch;
}

// Waits at most so many seconds; returns whether the launch is over. In slices, so that
// Python can look for an interrupt in between.
int kwemu_launch_wait(Launch* launch, double seconds) {
    timespec until = moment(now() + seconds);
    Guard guard(pool);
    while (launch->queued || launch->workers != 0) {
        if (exhausted(launch) && launch->queued && launch->workers == 0) break;
        if (pthread_cond_timedwait(&pool->done, &pool->mutex, &until) != 0) break;
    }
    return !launch->queued && launch->workers == 0;
}

void kwemu_launch_abandon(Launch* launch) {
    Guard guard(pool);
    int running = kFine;
    launch->abandon.compare_exchange_strong(running, kAbandoned);
    if (launch->workers == 0 && launch->queued) {
        for (auto it = pool->queue.begin(); it != pool->queue.end(); ++it)
            if (*it == launch) {
                pool->queue.erase(it);
                break;
            }
        launch->queued = false;
    }
    pthread_cond_broadcast(&pool->work);
}

const Outcome* kwemu_launch_outcome(Launch* launch) {
    Outcome& outcome = launch->outcome;
    if (!launch->failed.load() && launch->abandon.load() == kTimeout)
        outcome.kind = kTimeout;
    outcome.printed = launch->printed.data();
    outcome.printed_bytes = launch->printed.size();
    outcome.print_cut = launch->print_cut;
    outcome.early_exit_line = launch->early_exit_line.load();
    return &outcome;
}

void kwemu_launch_free(Launch* launch) {
    Guard guard(pool);
    for (auto it = pool->active.begin(); it != pool->active.end(); ++it)
        if (*it == launch) {
            pool->active.erase(it);
            break;
        }
    delete launch;
}

struct ModuleLayout {
    uint64_t load_address, text_begin, text_end, tls_module, tls_bytes, writable_bytes;
    uint64_t image_end;
};

struct LayoutQuery {
    uint64_t inside;
    ModuleLayout* layout;
};

static int look_for_module(dl_phdr_info* info, size_t, void* argument) {
    LayoutQuery* query = static_cast<LayoutQuery*>(argument);
    ModuleLayout found{};
    bool here = false;
    found.load_address = info->dlpi_addr;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const ElfW(Phdr)& segment = info->dlpi_phdr[i];
        uint64_t begin = info->dlpi_addr + segment.p_vaddr,
                 end = begin + segment.p_memsz;
        if (segment.p_type == PT_TLS) {
            found.tls_module = info->dlpi_tls_modid;
            found.tls_bytes = segment.p_memsz;
        }
        if (segment.p_type != PT_LOAD) continue;
        if (segment.p_flags & PF_X) {
            found.text_begin = begin;
            found.text_end = end;
        }
        if (end > found.image_end) found.image_end = end;
        here = here || (query->inside >= begin && query->inside < end);
    }
    if (!here) return 0;
    *query->layout = found;
    return 1;
}

int kwemu_module_layout(void* inside, ModuleLayout* layout) {
    LayoutQuery query{reinterpret_cast<uint64_t>(inside), layout};
    return dl_iterate_phdr(look_for_module, &query);
}

// The readable form of a type's mangled name; 0 where the buffer is too small.
int kwemu_demangle(const char* mangled, char* buffer, size_t size) {
    int status = 0;
    char* text = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
    if (text == nullptr) return 0;
    size_t length = strlen(text);
    if (length < size) memcpy(buffer, text, length + 1);
    free(text);
    return status == 0 && length < size;
}

}  // extern "C"
#pragma GCC visibility pop
