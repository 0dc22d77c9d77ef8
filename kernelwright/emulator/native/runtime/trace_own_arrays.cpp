// A thread's own arrays: what -fsanitize=bounds calls before an index leaves its array.
// libubsan is not linked.
//
// They may be in registers, where no hook sees an access. The compiler cannot tell whose
// an array is, and asks at shared and global ones too: there a row may be left for the
// next, and the shadow sees the end. So a finding counts only at the subscripts that
// Python named, which are all of the author's own.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "trace.h"

namespace kwemu {

namespace {

// The layouts of these three are the compilers' and libubsan's.
struct SourcePlace {
    const char* file;
    uint32_t line, column;
};

struct TypeNote {
    uint16_t kind;
    uint16_t info;  // of an integer: its sign in bit 0, log2(bits) from bit 1
    char name[1];   // as in 'float [3][7]', quotes included
};

struct OutOfBounds {
    SourcePlace at;
    const TypeNote* array;
    const TypeNote* index;
};

uint64_t index_of(const TypeNote& type, uint64_t bits) {
    unsigned width = 1u << (type.info >> 1);
    if (width >= 64) return bits;
    unsigned unused = 64 - width;
    bool has_sign = type.info & 1;
    return has_sign
               ? static_cast<uint64_t>(static_cast<int64_t>(bits << unused) >> unused)
               : bits << unused >> unused;
}

// How many elements there are for the subscript; 0 where only the run tells.
uint32_t extent_of(const TypeNote& type) {
    const char* bracket = strchr(type.name, '[');
    return bracket ? static_cast<uint32_t>(strtoul(bracket + 1, nullptr, 10)) : 0;
}

void left_array(const OutOfBounds& what, void* index, void* caller) {
    Worker* worker = self;
    if (worker == nullptr || worker->tracer == nullptr || worker->locked) return;
    // The author's file is compiled by its bare name; a header has a folder.
    if (what.at.file == nullptr || strchr(what.at.file, '/')) return;
    uint64_t place = static_cast<uint64_t>(what.at.line) << 32 | what.at.column;
    worker->tracer->own_array(
        place, index_of(*what.index, reinterpret_cast<uint64_t>(index)),
        extent_of(*what.array), reinterpret_cast<uint64_t>(caller));
}

}  // namespace

// An index is outside of an array; if that is a thread's own, the thread goes no further.
void Tracer::own_array(uint64_t at, uint64_t index, uint32_t extent, uint64_t pc) {
    const std::vector<uint64_t>& known = trace->subscripts;
    auto found = std::lower_bound(known.begin(), known.end(), at);
    if (found == known.end() || *found != at) return;
    if (pending.active) settle();
    if (noticing_count) take_notice(worker->current);
    ProblemRow row = problem(kOwnArray, index, 0, 0, pc, kNowhere);
    row.line = static_cast<int32_t>(at >> 32);
    row.subscript = static_cast<uint32_t>(found - known.begin());
    row.extent = extent;
    report(row);
    wounded = true;
    end_thread();
}

}  // namespace kwemu

#pragma GCC visibility push(default)
extern "C" {

void __ubsan_handle_out_of_bounds(void* what, void* index) {
    kwemu::left_array(*static_cast<kwemu::OutOfBounds*>(what), index,
                      __builtin_return_address(0));
}

// Its caller has nothing to go on with.
[[noreturn]] void __ubsan_handle_out_of_bounds_abort(void* what, void* index) {
    kwemu::left_array(*static_cast<kwemu::OutOfBounds*>(what), index,
                      __builtin_return_address(0));
    __builtin_trap();
}

// A fault like any other, on the line of the call (signals.cpp).
[[noreturn]] void __ubsan_handle_missing_return(void*) {
    __builtin_trap();
}

}  // extern "C"
#pragma GCC visibility pop
