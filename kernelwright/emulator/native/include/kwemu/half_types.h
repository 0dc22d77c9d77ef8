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

#define KWEMU_NAMESPACE kwemu_fp16
#define KWEMU_H __half
#define KWEMU_H2 __half2
#include "half_operations.h"
#undef KWEMU_NAMESPACE
#undef KWEMU_H
#undef KWEMU_H2

#define KWEMU_NAMESPACE kwemu_bf16
#define KWEMU_H __nv_bfloat16
#define KWEMU_H2 __nv_bfloat162
#include "half_operations.h"
#undef KWEMU_NAMESPACE
#undef KWEMU_H
#undef KWEMU_H2

// ---- the names that differ between the two ---------------------------------------------

namespace kwemu_fp16 {

using half = __half;
using half2 = __half2;
inline __half __float2half(float x) {
    return __half(x);
}
inline __half __float2half_rn(float x) {
    return __half(x);
}
inline __half __double2half(double x) {
    return __half(x);
}
inline __half __int2half_rn(int x) {
    return __half(x);
}
inline __half __uint2half_rn(unsigned x) {
    return __half(x);
}
inline float __half2float(__half x) {
    return x;
}
inline int __half2int_rn(__half x) {
    return __float2int_rn(x);
}
inline int __half2int_rz(__half x) {
    return __float2int_rz(x);
}
inline unsigned short __half_as_ushort(__half x) {
    return kwemu_bit_cast<unsigned short>(x);
}
inline short __half_as_short(__half x) {
    return kwemu_bit_cast<short>(x);
}
inline __half __ushort_as_half(unsigned short x) {
    return kwemu_bit_cast<__half>(x);
}
inline __half __short_as_half(short x) {
    return kwemu_bit_cast<__half>(x);
}
inline __half2 make_half2(__half x, __half y) {
    return {x, y};
}
inline __half2 __halves2half2(__half x, __half y) {
    return {x, y};
}
inline __half2 __half2half2(__half x) {
    return {x, x};
}
inline __half2 __float2half2_rn(float x) {
    return {__half(x), __half(x)};
}
inline __half2 __floats2half2_rn(float x, float y) {
    return {__half(x), __half(y)};
}
inline __half2 __float22half2_rn(float2 v) {
    return {__half(v.x), __half(v.y)};
}
inline float2 __half22float2(__half2 v) {
    return {float(v.x), float(v.y)};
}
inline __half __low2half(__half2 v) {
    return v.x;
}
inline __half __high2half(__half2 v) {
    return v.y;
}
inline __half2 __low2half2(__half2 v) {
    return {v.x, v.x};
}
inline __half2 __high2half2(__half2 v) {
    return {v.y, v.y};
}
inline __half2 __lows2half2(__half2 a, __half2 b) {
    return {a.x, b.x};
}
inline __half2 __highs2half2(__half2 a, __half2 b) {
    return {a.y, b.y};
}
inline __half2 __lowhigh2highlow(__half2 v) {
    return {v.y, v.x};
}

}  // namespace kwemu_fp16

namespace kwemu_bf16 {

using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;
inline __nv_bfloat16 __float2bfloat16(float x) {
    return __nv_bfloat16(x);
}
inline __nv_bfloat16 __float2bfloat16_rn(float x) {
    return __nv_bfloat16(x);
}
inline __nv_bfloat16 __double2bfloat16(double x) {
    return __nv_bfloat16(x);
}
inline __nv_bfloat16 __int2bfloat16_rn(int x) {
    return __nv_bfloat16(x);
}
inline float __bfloat162float(__nv_bfloat16 x) {
    return x;
}
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) {
    return x.kwemu_value;
}
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short x) {
    return kwemu_bit_cast<__nv_bfloat16>(x);
}
inline __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) {
    return {x, y};
}
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) {
    return {x, y};
}
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 x) {
    return {x, x};
}
inline __nv_bfloat162 __float2bfloat162_rn(float x) {
    return {__nv_bfloat16(x), __nv_bfloat16(x)};
}
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
    return {__nv_bfloat16(x), __nv_bfloat16(y)};
}
inline __nv_bfloat162 __float22bfloat162_rn(float2 v) {
    return {__nv_bfloat16(v.x), __nv_bfloat16(v.y)};
}
inline float2 __bfloat1622float2(__nv_bfloat162 v) {
    return {float(v.x), float(v.y)};
}
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 v) {
    return v.x;
}
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 v) {
    return v.y;
}

}  // namespace kwemu_bf16

#endif  // KWEMU_HALF_TYPES_H
