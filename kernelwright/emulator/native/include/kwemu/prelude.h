// What every CUDA source finds without an #include: precompiled, and put before the
// author's first line.
#ifndef KWEMU_PRELUDE_H
#define KWEMU_PRELUDE_H

// The host's headers come first: CUDA's names are macros here, and must not meet them.
// glibc's math.h declares a function `gamma`, which kernels like to call a weight.
#define gamma kwemu_hidden_gamma
#include <math.h>
#undef gamma
#include <cfloat>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include "abi.h"
#include "whole.h"
#include "keywords.h"

// A function of ours that touches memory for the author must be part of the author's
// line, or the trace would put the access on a line of a header.
#ifdef KWEMU_TRACED
#define inline inline __attribute__((always_inline))
#endif

#include "vector_types.h"
#include "indices.h"
#include "warp.h"
#include "atomics.h"
#include "memory.h"
#include "integer_math.h"
#include "float_math.h"
#include "half_types.h"
#include "matrix.h"
#include "wmma.h"
#include "cooperative_groups.h"
#include "output.h"
#include "thunk.h"

#ifdef KWEMU_TRACED
#undef inline
#endif

#endif  // KWEMU_PRELUDE_H
