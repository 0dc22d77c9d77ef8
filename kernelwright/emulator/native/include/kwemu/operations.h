// What lanes meet for, an operation a line: its number is its place, from 1. Python reads
// the table too (kernelwright/emulator/operations.py), so an operation that a trace is to
// count needs a line here and the header that calls kwemu_meet with it.
#ifndef KWEMU_OPERATIONS_H
#define KWEMU_OPERATIONS_H

// X(operation,
//   what a thread is said to be in that waits there,
//   what a trace counts it as, "" where it is not counted,
//   the sentence that says how often a block did it,
//   the machine instruction that it becomes)
#define KWEMU_OPERATIONS(X)                                                            \
    X(BARRIER, "__syncthreads", "barriers", "A block waits at {} barriers", "BAR")     \
    X(SYNCWARP, "__syncwarp", "", "", "")                                              \
    X(SHUFFLE, "a warp shuffle", "shuffles", "A block's warps shuffle {} times",       \
      "SHFL")                                                                          \
    X(VOTE, "a warp vote", "", "", "")                                                 \
    X(MATCH, "a warp match", "", "", "")                                               \
    X(REDUCE, "a warp reduction", "", "", "")                                          \
    X(MMA, "a matrix multiply-add", "matrix products",                                 \
      "A block's warps multiply {} times on tensor cores", "HMMA")                     \
    X(LDMATRIX, "ldmatrix", "ldmatrix", "A block's warps load {} times by ldmatrix",   \
      "LDSM")                                                                          \
    X(GROUP, "a cooperative group's operation", "", "", "")                            \
    X(ACTIVEMASK, "__activemask", "", "", "")                                          \
    X(FRAGMENT, "a fragment's load or store", "", "", "")                              \
    /* A group's reduce or scan, which a GPU makes of shuffles. */                     \
    X(GROUP_FOLD, "a cooperative group's operation", "shuffles", "", "")               \
    /* No meeting, but what its asynchronous copies do while a warp multiplies. */     \
    X(COPIES_UNDER_WAY, "", "bytes under way at a product",                            \
      "While a block multiplies, on average {} bytes of its copies are under way", "") \
    /* Nor this: of all warps of the launch, what the one with most to do asks for. */ \
    X(BUSIEST_WARP, "", "requests of the busiest warp",                                \
      "The busiest warp makes {} requests of global memory", "")

enum kwemu_operation {
    KWEMU_NO_OPERATION,
#define KWEMU_OPERATION(name, ...) KWEMU_##name,
    KWEMU_OPERATIONS(KWEMU_OPERATION)
#undef KWEMU_OPERATION
        KWEMU_OPERATION_COUNT
};

#endif
