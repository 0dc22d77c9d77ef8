// What the compiler's instrumentation calls, and what Python asks of a trace.
//
// -fsanitize=thread puts a call before every load and store; libtsan is not linked.
#include <sys/mman.h>

#include <cstring>

#include "trace.h"

using namespace kwemu;

namespace kwemu {

namespace {

inline void seen(uint64_t address, unsigned width, unsigned op, void* caller) {
    Worker* worker = self;
    if (worker == nullptr || worker->tracer == nullptr || worker->locked) return;
    worker->tracer->access(address, width, op, reinterpret_cast<uint64_t>(caller));
}

// A copy of a struct: a GPU moves it in the widest pieces that its size allows.
void seen_range(uint64_t address, uint64_t size, unsigned op, void* caller) {
    if (size == 0) return;
    uint64_t piece = size & -size;
    if (piece > 16) piece = 16;
    while (address & (piece - 1)) piece >>= 1;
    for (uint64_t at = 0; at < size; at += piece)
        seen(address + at, static_cast<unsigned>(piece), op, caller);
}

void* shadow(size_t bytes) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? nullptr : memory;
}

size_t words_of(const Region& region) {
    return (region.high - (region.low & ~3ull)) / 4 + 2;
}
size_t sector_words(const Region& region) {
    return ((region.high >> 5) - (region.low >> 5)) / 32 + 2;
}

}  // namespace

void trace_begin_block(Worker& worker, uint64_t number, uint32_t which) {
    Trace* trace = static_cast<Trace*>(worker.launch->spec.trace);
    if (worker.tracer == nullptr) {
        Tracer* fresh = new Tracer(trace, &worker);
        while (trace->lock.test_and_set(std::memory_order_acquire)) {
        }
        trace->tracers.push_back(fresh);
        trace->lock.clear(std::memory_order_release);
        worker.tracer = fresh;
    }
    worker.tracer->begin_block(number, which);
}

}  // namespace kwemu

#pragma GCC visibility push(default)
extern "C" {

#define KWEMU_HOOK(size)                                                               \
    void __tsan_read##size(void* p) {                                                  \
        seen(reinterpret_cast<uint64_t>(p), size, kLoad, __builtin_return_address(0)); \
    }                                                                                  \
    void __tsan_write##size(void* p) {                                                 \
        seen(reinterpret_cast<uint64_t>(p), size, kStore,                              \
             __builtin_return_address(0));                                             \
    }                                                                                  \
    void __tsan_unaligned_read##size(void* p) {                                        \
        seen_range(reinterpret_cast<uint64_t>(p), size, kLoad,                         \
                   __builtin_return_address(0));                                       \
    }                                                                                  \
    void __tsan_unaligned_write##size(void* p) {                                       \
        seen_range(reinterpret_cast<uint64_t>(p), size, kStore,                        \
                   __builtin_return_address(0));                                       \
    }
KWEMU_HOOK(1)
KWEMU_HOOK(2)
KWEMU_HOOK(4)
KWEMU_HOOK(8)
KWEMU_HOOK(16)
#undef KWEMU_HOOK

void __tsan_read_range(void* p, size_t size) {
    seen_range(reinterpret_cast<uint64_t>(p), size, kLoad, __builtin_return_address(0));
}
void __tsan_write_range(void* p, size_t size) {
    seen_range(reinterpret_cast<uint64_t>(p), size, kStore,
               __builtin_return_address(0));
}
// clang's: the copy is ours to make.
void* __tsan_memcpy(void* to, const void* from, size_t size) {
    void* caller = __builtin_return_address(0);
    seen_range(reinterpret_cast<uint64_t>(from), size, kLoad, caller);
    seen_range(reinterpret_cast<uint64_t>(to), size, kStore, caller);
    return memcpy(to, from, size);
}
void* __tsan_memmove(void* to, const void* from, size_t size) {
    void* caller = __builtin_return_address(0);
    seen_range(reinterpret_cast<uint64_t>(from), size, kLoad, caller);
    seen_range(reinterpret_cast<uint64_t>(to), size, kStore, caller);
    return memmove(to, from, size);
}
void* __tsan_memset(void* to, int value, size_t size) {
    seen_range(reinterpret_cast<uint64_t>(to), size, kStore,
               __builtin_return_address(0));
    return memset(to, value, size);
}
// -fsanitize-coverage=trace-pc calls it where a stretch of code without a branch begins.
void __sanitizer_cov_trace_pc() {
    Worker* worker = self;
    if (worker == nullptr || worker->tracer == nullptr || worker->locked) return;
    worker->tracer->enter(reinterpret_cast<uint64_t>(__builtin_return_address(0)));
}

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

// The atomics of <kwemu/atomics.h> say so themselves, once for each that the author wrote.
void kwemu_note(const void* p, unsigned width, unsigned op, int line) {
    Worker* worker = self;
    if (worker == nullptr || worker->tracer == nullptr) return;
    worker->tracer->line = line;
    worker->tracer->scope = op & KWEMU_BLOCK_SCOPE    ? kBlockScope
                            : op & KWEMU_SYSTEM_SCOPE ? kSystemScope
                                                      : kDeviceScope;
    seen(reinterpret_cast<uint64_t>(p), width,
         op & ~(KWEMU_BLOCK_SCOPE | KWEMU_SYSTEM_SCOPE), __builtin_return_address(0));
    worker->tracer->line = 0;
    worker->tracer->scope = kDeviceScope;
}

void kwemu_system_fence() {
    if (self != nullptr && self->tracer != nullptr) self->tracer->fence(kSystemScope);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

#define KWEMU_ATOMICS(bits, type)                                                      \
    type __tsan_atomic##bits##_load(const volatile type* p, int) {                     \
        return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                   \
    }                                                                                  \
    void __tsan_atomic##bits##_store(volatile type* p, type v, int) {                  \
        __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                      \
    }                                                                                  \
    type __tsan_atomic##bits##_exchange(volatile type* p, type v, int) {               \
        return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);                            \
    }                                                                                  \
    type __tsan_atomic##bits##_fetch_add(volatile type* p, type v, int) {              \
        return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);                             \
    }                                                                                  \
    type __tsan_atomic##bits##_fetch_sub(volatile type* p, type v, int) {              \
        return __atomic_fetch_sub(p, v, __ATOMIC_SEQ_CST);                             \
    }                                                                                  \
    type __tsan_atomic##bits##_fetch_and(volatile type* p, type v, int) {              \
        return __atomic_fetch_and(p, v, __ATOMIC_SEQ_CST);                             \
    }                                                                                  \
    type __tsan_atomic##bits##_fetch_or(volatile type* p, type v, int) {               \
        return __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST);                              \
    }                                                                                  \
    type __tsan_atomic##bits##_fetch_xor(volatile type* p, type v, int) {              \
        return __atomic_fetch_xor(p, v, __ATOMIC_SEQ_CST);                             \
    }                                                                                  \
    type __tsan_atomic##bits##_fetch_nand(volatile type* p, type v, int) {             \
        return __atomic_fetch_nand(p, v, __ATOMIC_SEQ_CST);                            \
    }                                                                                  \
    int __tsan_atomic##bits##_compare_exchange_strong(volatile type* p, type* c,       \
                                                      type v, int, int) {              \
        return __atomic_compare_exchange_n(p, c, v, false, __ATOMIC_SEQ_CST,           \
                                           __ATOMIC_SEQ_CST);                          \
    }                                                                                  \
    int __tsan_atomic##bits##_compare_exchange_weak(volatile type* p, type* c, type v, \
                                                    int, int) {                        \
        return __atomic_compare_exchange_n(p, c, v, false, __ATOMIC_SEQ_CST,           \
                                           __ATOMIC_SEQ_CST);                          \
    }                                                                                  \
    type __tsan_atomic##bits##_compare_exchange_val(volatile type* p, type c, type v,  \
                                                    int, int) {                        \
        __atomic_compare_exchange_n(p, &c, v, false, __ATOMIC_SEQ_CST,                 \
                                    __ATOMIC_SEQ_CST);                                 \
        return c;                                                                      \
    }
KWEMU_ATOMICS(8, unsigned char)
KWEMU_ATOMICS(16, unsigned short)
KWEMU_ATOMICS(32, unsigned)
KWEMU_ATOMICS(64, unsigned long long)
#undef KWEMU_ATOMICS
// __threadfence_block() is the only fence that is not sequentially consistent.
void __tsan_atomic_thread_fence(int order) {
    if (self != nullptr && self->tracer != nullptr)
        self->tracer->fence(order == __ATOMIC_SEQ_CST ? kDeviceScope : kBlockScope);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
void __tsan_atomic_signal_fence(int) {}

Trace* kwemu_trace_new(const TraceSpec* spec) {
    Trace* trace = new Trace;
    trace->spec = *spec;
    trace->regions.assign(spec->regions, spec->regions + spec->region_count);
    trace->blocks.assign(spec->blocks, spec->blocks + spec->block_count);
    trace->subscripts.assign(spec->subscripts,
                             spec->subscripts + spec->subscript_count);
    trace->published.resize(spec->block_count + 2);
    for (const Region& region : trace->regions) {
        bool plain = region.constant;
        trace->cells.push_back(
            plain ? nullptr
                  : static_cast<Cell*>(shadow(words_of(region) * sizeof(Cell))));
        trace->sectors.push_back(
            plain ? nullptr : static_cast<uint32_t*>(shadow(sector_words(region) * 4)));
        uint64_t words = (region.high + 3) / 4 - region.low / 4;
        trace->sharing.push_back(std::make_unique<Sharing>(plain ? 0 : words));
    }
    return trace;
}

// For each byte of the module's thread-local segment, whose it is.
void kwemu_trace_layout(Trace* trace, const uint8_t* kind, uint64_t bytes) {
    trace->tls_kind.assign(kind, kind + bytes);
    trace->tls_kind.resize(bytes + 32);
}

unsigned kwemu_trace_workers(Trace* trace) {
    return static_cast<unsigned>(trace->tracers.size());
}

void kwemu_trace_result(Trace* trace, unsigned number, TraceResult* result) {
    Tracer& tracer = *trace->tracers[number];
    tracer.rows.clear();
    for (const Site& site : tracer.sites) {
        tracer.rows.push_back(site.row);
        tracer.rows.back().uneven = tracer.flow.is_uneven(site.node);
    }
    *result = {tracer.rows.data(), tracer.log.data(),  tracer.problems.data(),
               tracer.rows.size(), tracer.log.size(),  tracer.problems.size(),
               tracer.static_low,  tracer.dynamic_low, tracer.operations};
}

uint64_t kwemu_trace_unique_sectors(Trace* trace, unsigned region) {
    const uint32_t* bits = trace->sectors[region];
    uint64_t count = 0;
    if (bits)
        for (size_t i = 0; i < sector_words(trace->regions[region]); ++i)
            count += static_cast<uint64_t>(__builtin_popcount(bits[i]));
    return count;
}

void kwemu_trace_free(Trace* trace) {
    for (size_t i = 0; i < trace->regions.size(); ++i) {
        const Region& region = trace->regions[i];
        if (trace->cells[i]) munmap(trace->cells[i], words_of(region) * sizeof(Cell));
        if (trace->sectors[i]) munmap(trace->sectors[i], sector_words(region) * 4);
    }
    for (Tracer* tracer : trace->tracers) delete tracer;
    delete trace;
}

}  // extern "C"
#pragma GCC visibility pop
