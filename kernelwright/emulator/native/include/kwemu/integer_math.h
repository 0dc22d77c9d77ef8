// Integer and bit intrinsics, min and max, conversions and reinterpretations.
#ifndef KWEMU_INTEGER_MATH_H
#define KWEMU_INTEGER_MATH_H

// One pair of templates for CUDA's many overloads: the result is what the usual
// arithmetic conversions make of the two, and of two floats a NaN loses, as in fmaxf.
template <class A, class B>
using kwemu_common =
    std::enable_if_t<std::is_arithmetic<A>::value && std::is_arithmetic<B>::value,
                     std::common_type_t<A, B>>;

template <class A, class B>
constexpr kwemu_common<A, B> min(A a, B b) {
    using T = std::common_type_t<A, B>;
    if constexpr (std::is_floating_point<T>::value) {
        return std::fmin(static_cast<T>(a), static_cast<T>(b));
    } else {
        return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(a)
                                                     : static_cast<T>(b);
    }
}
template <class A, class B>
constexpr kwemu_common<A, B> max(A a, B b) {
    using T = std::common_type_t<A, B>;
    if constexpr (std::is_floating_point<T>::value) {
        return std::fmax(static_cast<T>(a), static_cast<T>(b));
    } else {
        return static_cast<T>(a) > static_cast<T>(b) ? static_cast<T>(a)
                                                     : static_cast<T>(b);
    }
}
inline unsigned umin(unsigned a, unsigned b) {
    return a < b ? a : b;
}
inline unsigned umax(unsigned a, unsigned b) {
    return a > b ? a : b;
}
inline long long llmin(long long a, long long b) {
    return a < b ? a : b;
}
inline long long llmax(long long a, long long b) {
    return a > b ? a : b;
}
inline unsigned long long ullmin(unsigned long long a, unsigned long long b) {
    return a < b ? a : b;
}
inline unsigned long long ullmax(unsigned long long a, unsigned long long b) {
    return a > b ? a : b;
}

// ---- bits ------------------------------------------------------------------------------

inline int __popc(unsigned x) {
    return __builtin_popcount(x);
}
inline int __popcll(unsigned long long x) {
    return __builtin_popcountll(x);
}
inline int __clz(int x) {
    return x ? __builtin_clz(static_cast<unsigned>(x)) : 32;
}
inline int __clzll(long long x) {
    return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64;
}
inline int __ffs(int x) {
    return __builtin_ffs(x);
}
inline int __ffsll(long long x) {
    return __builtin_ffsll(x);
}
inline unsigned __brev(unsigned x) {
    x = __builtin_bswap32(x);
    x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
    x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
    return (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
}
inline unsigned long long __brevll(unsigned long long x) {
    return static_cast<unsigned long long>(__brev(static_cast<unsigned>(x))) << 32 |
           __brev(static_cast<unsigned>(x >> 32));
}
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
    unsigned long long both = static_cast<unsigned long long>(high) << 32 | low;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i) {
        unsigned choice = selector >> 4 * i;
        unsigned byte = static_cast<unsigned>(both >> 8 * (choice & 7)) & 255;
        if (choice & 8) byte = byte & 128 ? 255 : 0;
        result |= byte << 8 * i;
    }
    return result;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    unsigned long long both = static_cast<unsigned long long>(high) << 32 | low;
    return static_cast<unsigned>(both << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    unsigned long long both = static_cast<unsigned long long>(high) << 32 | low;
    return static_cast<unsigned>(both >> (shift & 31));
}

// ---- products and sums -----------------------------------------------------------------

inline int __mulhi(int a, int b) {
    return static_cast<int>(static_cast<long long>(a) * b >> 32);
}
inline unsigned __umulhi(unsigned a, unsigned b) {
    return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32);
}
inline long long __mul64hi(long long a, long long b) {
    return static_cast<long long>(static_cast<__int128>(a) * b >> 64);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline int __mul24(int a, int b) {
    return static_cast<int>(static_cast<unsigned>(a << 8 >> 8) *
                            static_cast<unsigned>(b << 8 >> 8));
}
inline unsigned __umul24(unsigned a, unsigned b) {
    return (a & 0xffffffu) * (b & 0xffffffu);
}
inline unsigned __sad(int a, int b, unsigned c) {
    return c + (a > b ? static_cast<unsigned>(a) - static_cast<unsigned>(b)
                      : static_cast<unsigned>(b) - static_cast<unsigned>(a));
}
inline unsigned __usad(unsigned a, unsigned b, unsigned c) {
    return c + (a > b ? a - b : b - a);
}
inline int __hadd(int a, int b) {
    return static_cast<int>((static_cast<long long>(a) + b) >> 1);
}
inline int __dp4a(int a, int b, int c) {
    for (int i = 0; i < 32; i += 8)
        c += static_cast<signed char>(a >> i) * static_cast<signed char>(b >> i);
    return c;
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
    for (int i = 0; i < 32; i += 8) c += (a >> i & 255u) * (b >> i & 255u);
    return c;
}

// ---- one type's bits as another's ------------------------------------------------------

template <class To, class From>
inline To kwemu_bit_cast(From from) {
    static_assert(sizeof(To) == sizeof(From), "as many bits in as out");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
inline int __float_as_int(float x) {
    return kwemu_bit_cast<int>(x);
}
inline unsigned __float_as_uint(float x) {
    return kwemu_bit_cast<unsigned>(x);
}
inline float __int_as_float(int x) {
    return kwemu_bit_cast<float>(x);
}
inline float __uint_as_float(unsigned x) {
    return kwemu_bit_cast<float>(x);
}
inline long long __double_as_longlong(double x) {
    return kwemu_bit_cast<long long>(x);
}
inline double __longlong_as_double(long long x) {
    return kwemu_bit_cast<double>(x);
}
inline int __double2hiint(double x) {
    return static_cast<int>(__double_as_longlong(x) >> 32);
}
inline int __double2loint(double x) {
    return static_cast<int>(__double_as_longlong(x));
}
inline double __hiloint2double(int high, int low) {
    return __longlong_as_double(static_cast<long long>(high) << 32 |
                                static_cast<unsigned>(low));
}

// ---- numbers of one type as another's --------------------------------------------------

// A GPU's conversion saturates, and makes 0 of a NaN.
template <class To, class From>
inline To kwemu_saturate(From x) {
    constexpr To low =
        std::is_signed<To>::value ? To(To(1) << (sizeof(To) * 8 - 1)) : To(0);
    constexpr To high = To(~low);
    if (!(x == x)) return 0;
    if (x <= static_cast<From>(low)) return low;
    if (x >= static_cast<From>(high)) return high;
    return static_cast<To>(x);
}

#define KWEMU_CONVERT(name, to, from)                  \
    inline to name##_rn(from x) {                      \
        return kwemu_saturate<to>(__builtin_rint(x));  \
    }                                                  \
    inline to name##_rz(from x) {                      \
        return kwemu_saturate<to>(__builtin_trunc(x)); \
    }                                                  \
    inline to name##_ru(from x) {                      \
        return kwemu_saturate<to>(__builtin_ceil(x));  \
    }                                                  \
    inline to name##_rd(from x) {                      \
        return kwemu_saturate<to>(__builtin_floor(x)); \
    }
KWEMU_CONVERT(__float2int, int, float)
KWEMU_CONVERT(__float2uint, unsigned, float)
KWEMU_CONVERT(__float2ll, long long, float)
KWEMU_CONVERT(__float2ull, unsigned long long, float)
KWEMU_CONVERT(__double2int, int, double)
KWEMU_CONVERT(__double2uint, unsigned, double)
KWEMU_CONVERT(__double2ll, long long, double)
KWEMU_CONVERT(__double2ull, unsigned long long, double)
#undef KWEMU_CONVERT

inline float __int2float_rn(int x) {
    return static_cast<float>(x);
}
inline float __uint2float_rn(unsigned x) {
    return static_cast<float>(x);
}
inline float __ll2float_rn(long long x) {
    return static_cast<float>(x);
}
inline float __ull2float_rn(unsigned long long x) {
    return static_cast<float>(x);
}
inline float __double2float_rn(double x) {
    return static_cast<float>(x);
}
inline double __int2double_rn(int x) {
    return x;
}
inline double __uint2double_rn(unsigned x) {
    return x;
}
inline double __ll2double_rn(long long x) {
    return static_cast<double>(x);
}
inline double __ull2double_rn(unsigned long long x) {
    return static_cast<double>(x);
}

#endif  // KWEMU_INTEGER_MATH_H
