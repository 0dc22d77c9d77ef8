// The operations that fp16 and bf16 have in common; included once for each, with
// KWEMU_NAMESPACE, KWEMU_H (the scalar) and KWEMU_H2 (the pair) defined. No guard.

namespace KWEMU_NAMESPACE {

struct alignas(4) KWEMU_H2 {
    KWEMU_H x, y;
#ifdef KWEMU_TRACED
    KWEMU_WHOLE(KWEMU_H2)
#else
    KWEMU_H2() = default;
#endif
    KWEMU_H2(KWEMU_H x, KWEMU_H y) : x(x), y(y) {}
};

// ---- operators -------------------------------------------------------------------------

#define KWEMU_OPERATOR(op)                                              \
    inline KWEMU_H operator op(const KWEMU_H& a, const KWEMU_H& b) {    \
        return KWEMU_H(float(a) op float(b));                           \
    }                                                                   \
    inline KWEMU_H& operator op##=(KWEMU_H & a, const KWEMU_H & b) {    \
        return a = a op b;                                              \
    }                                                                   \
    inline KWEMU_H2 operator op(const KWEMU_H2& a, const KWEMU_H2& b) { \
        return {a.x op b.x, a.y op b.y};                                \
    }                                                                   \
    inline KWEMU_H2& operator op##=(KWEMU_H2 & a, const KWEMU_H2 & b) { \
        return a = a op b;                                              \
    }
KWEMU_OPERATOR(+)
KWEMU_OPERATOR(-)
KWEMU_OPERATOR(*)
KWEMU_OPERATOR(/)
#undef KWEMU_OPERATOR

#define KWEMU_COMPARE(op)                                         \
    inline bool operator op(const KWEMU_H& a, const KWEMU_H& b) { \
        return float(a) op float(b);                              \
    }
KWEMU_COMPARE(==)
KWEMU_COMPARE(!=)
KWEMU_COMPARE(<)
KWEMU_COMPARE(>)
KWEMU_COMPARE(<=)
KWEMU_COMPARE(>=)
#undef KWEMU_COMPARE

inline KWEMU_H operator-(const KWEMU_H& a) {
    return KWEMU_H(-float(a));
}
inline KWEMU_H operator+(const KWEMU_H& a) {
    return a;
}
inline KWEMU_H2 operator-(const KWEMU_H2& a) {
    return {-a.x, -a.y};
}
inline KWEMU_H& operator++(KWEMU_H& a) {
    return a = KWEMU_H(float(a) + 1.0f);
}
inline KWEMU_H& operator--(KWEMU_H& a) {
    return a = KWEMU_H(float(a) - 1.0f);
}

// ---- arithmetic by name, for one and for a pair ----------------------------------------

#define KWEMU_BINARY(name, expression)                \
    inline KWEMU_H name(KWEMU_H p, KWEMU_H q) {       \
        float a = p, b = q;                           \
        return KWEMU_H(expression);                   \
    }                                                 \
    inline KWEMU_H2 name##2(KWEMU_H2 p, KWEMU_H2 q) { \
        return {name(p.x, q.x), name(p.y, q.y)};      \
    }
KWEMU_BINARY(__hadd, a + b)
KWEMU_BINARY(__hsub, a - b)
KWEMU_BINARY(__hmul, a* b)
KWEMU_BINARY(__hadd_rn, a + b)
KWEMU_BINARY(__hsub_rn, a - b)
KWEMU_BINARY(__hmul_rn, a* b)
KWEMU_BINARY(__hadd_sat, __saturatef(a + b))
KWEMU_BINARY(__hmul_sat, __saturatef(a* b))
KWEMU_BINARY(__hmax, fmaxf(a, b))
KWEMU_BINARY(__hmin, fminf(a, b))
#undef KWEMU_BINARY
// These let a NaN through, where the plain ones take the other operand.
#define KWEMU_WITH_NAN(name, name2, plain)                  \
    inline KWEMU_H name(KWEMU_H a, KWEMU_H b) {             \
        if (__builtin_isnan(float(a))) return a;            \
        return __builtin_isnan(float(b)) ? b : plain(a, b); \
    }                                                       \
    inline KWEMU_H2 name2(KWEMU_H2 p, KWEMU_H2 q) {         \
        return {name(p.x, q.x), name(p.y, q.y)};            \
    }
KWEMU_WITH_NAN(__hmax_nan, __hmax2_nan, __hmax)
KWEMU_WITH_NAN(__hmin_nan, __hmin2_nan, __hmin)
#undef KWEMU_WITH_NAN
inline KWEMU_H __hdiv(KWEMU_H a, KWEMU_H b) {
    return a / b;
}
inline KWEMU_H2 __h2div(KWEMU_H2 a, KWEMU_H2 b) {
    return a / b;
}

inline KWEMU_H __hfma(KWEMU_H a, KWEMU_H b, KWEMU_H c) {
    return KWEMU_H(fmaf(float(a), float(b), float(c)));
}
inline KWEMU_H2 __hfma2(KWEMU_H2 a, KWEMU_H2 b, KWEMU_H2 c) {
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}

#define KWEMU_UNARY(name, name2, expression) \
    inline KWEMU_H name(KWEMU_H p) {         \
        float a = p;                         \
        return KWEMU_H(expression);          \
    }                                        \
    inline KWEMU_H2 name2(KWEMU_H2 p) {      \
        return {name(p.x), name(p.y)};       \
    }
KWEMU_UNARY(__hneg, __hneg2, -a)
KWEMU_UNARY(__habs, __habs2, fabsf(a))
KWEMU_UNARY(hexp, h2exp, expf(a))
KWEMU_UNARY(hexp2, h2exp2, exp2f(a))
KWEMU_UNARY(hexp10, h2exp10, __exp10f(a))
KWEMU_UNARY(hlog, h2log, logf(a))
KWEMU_UNARY(hlog2, h2log2, log2f(a))
KWEMU_UNARY(hlog10, h2log10, log10f(a))
KWEMU_UNARY(hsqrt, h2sqrt, sqrtf(a))
KWEMU_UNARY(hrsqrt, h2rsqrt, rsqrtf(a))
KWEMU_UNARY(hrcp, h2rcp, 1.0f / a)
KWEMU_UNARY(hsin, h2sin, sinf(a))
KWEMU_UNARY(hcos, h2cos, cosf(a))
KWEMU_UNARY(htanh, h2tanh, tanhf(a))
KWEMU_UNARY(hfloor, h2floor, floorf(a))
KWEMU_UNARY(hceil, h2ceil, ceilf(a))
KWEMU_UNARY(htrunc, h2trunc, truncf(a))
KWEMU_UNARY(hrint, h2rint, rintf(a))
#undef KWEMU_UNARY

#define KWEMU_COMPARE(name, op)                         \
    inline bool name(KWEMU_H a, KWEMU_H b) {            \
        return float(a) op float(b);                    \
    }                                                   \
    inline KWEMU_H2 name##2(KWEMU_H2 a, KWEMU_H2 b) {   \
        return {KWEMU_H(name(a.x, b.x) ? 1.0f : 0.0f),  \
                KWEMU_H(name(a.y, b.y) ? 1.0f : 0.0f)}; \
    }
KWEMU_COMPARE(__heq, ==)
KWEMU_COMPARE(__hne, !=)
KWEMU_COMPARE(__hlt, <)
KWEMU_COMPARE(__hle, <=)
KWEMU_COMPARE(__hgt, >)
KWEMU_COMPARE(__hge, >=)
#undef KWEMU_COMPARE
inline bool __hisnan(KWEMU_H a) {
    return float(a) != float(a);
}
inline int __hisinf(KWEMU_H a) {
    return float(a) == HUGE_VALF ? 1 : float(a) == -HUGE_VALF ? -1 : 0;
}

inline float __low2float(KWEMU_H2 v) {
    return v.x;
}
inline float __high2float(KWEMU_H2 v) {
    return v.y;
}

// ---- atomics ---------------------------------------------------------------------------

inline KWEMU_H atomicAdd(KWEMU_H* address, KWEMU_H value) {
    KWEMU_NOTE_ATOMIC(address);
    return kwemu_update(address, [=](KWEMU_H x) { return x + value; });
}
inline KWEMU_H2 atomicAdd(KWEMU_H2* address, KWEMU_H2 value) {
    KWEMU_NOTE_ATOMIC(address);
    return kwemu_update(address, [=](KWEMU_H2 x) { return x + value; });
}

}  // namespace KWEMU_NAMESPACE

template <>
struct kwemu_shuffles<KWEMU_NAMESPACE::KWEMU_H> : std::true_type {};
template <>
struct kwemu_shuffles<KWEMU_NAMESPACE::KWEMU_H2> : std::true_type {};
