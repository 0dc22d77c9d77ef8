// fp16 and bf16 under CUDA's names, each in a namespace of its own that <cuda_fp16.h> and
// <cuda_bf16.h> open: without the #include the names are unknown, as with NVRTC.
//
// Arithmetic is done in fp32 and rounded once. For sums, products, quotients and roots of
// two such numbers that is the correctly rounded result.
#ifndef KWEMU_HALF_TYPES_H
#define KWEMU_HALF_TYPES_H

namespace kwemu_fp16 {

struct __half_raw {
    unsigned short x;
};

struct alignas(2) __half {
    _Float16 kwemu_value;

    __half() = default;
    template <class T, class = std::enable_if_t<std::is_arithmetic<T>::value>>
    constexpr __half(T x) : kwemu_value(static_cast<_Float16>(x)) {}
    __half(__half_raw raw) { memcpy(this, &raw, sizeof raw); }
    constexpr operator float() const { return static_cast<float>(kwemu_value); }
    operator __half_raw() const {
        __half_raw raw;
        memcpy(&raw, this, sizeof raw);
        return raw;
    }
};

}  // namespace kwemu_fp16

namespace kwemu_bf16 {

struct __nv_bfloat16_raw {
    unsigned short x;
};

// The upper half of a float, rounded to nearest even; a NaN stays one.
inline unsigned short kwemu_bf16_bits(float x) {
    unsigned bits;
    memcpy(&bits, &x, sizeof bits);
    if (x != x) return 0x7fff;
    return static_cast<unsigned short>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

struct alignas(2) __nv_bfloat16 {
    unsigned short kwemu_value;

    __nv_bfloat16() = default;
    template <class T, class = std::enable_if_t<std::is_arithmetic<T>::value>>
    __nv_bfloat16(T x) : kwemu_value(kwemu_bf16_bits(static_cast<float>(x))) {}
    __nv_bfloat16(__nv_bfloat16_raw raw) : kwemu_value(raw.x) {}
    operator float() const {
        unsigned bits = static_cast<unsigned>(kwemu_value) << 16;
        float x;
        memcpy(&x, &bits, sizeof x);
        return x;
    }
    operator __nv_bfloat16_raw() const { return {kwemu_value}; }
};

}  // namespace kwemu_bf16

// ---- operators and functions, one text for both ----------------------------------------

#define KWEMU_NAMESPACE kwemu_fp16
#define KWEMU_H __half
#define KWEMU_H2 __half2
#define KWEMU_NAMED(before, after) before##half##after
#include "half_operations.h"
#include "half_conversions.h"
#undef KWEMU_NAMESPACE
#undef KWEMU_H
#undef KWEMU_H2
#undef KWEMU_NAMED

#define KWEMU_NAMESPACE kwemu_bf16
#define KWEMU_H __nv_bfloat16
#define KWEMU_H2 __nv_bfloat162
#define KWEMU_NAMED(before, after) before##bfloat16##after
#include "half_operations.h"
#include "half_conversions.h"
#undef KWEMU_NAMESPACE
#undef KWEMU_H
#undef KWEMU_H2
#undef KWEMU_NAMED

namespace kwemu_fp16 {

using half = __half;
using half2 = __half2;
inline __half2 __half2half2(__half x) {
    return {x, x};
}

}  // namespace kwemu_fp16

namespace kwemu_bf16 {

using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 x) {
    return {x, x};
}

}  // namespace kwemu_bf16

#endif  // KWEMU_HALF_TYPES_H
