// The conversions of fp16 and of bf16, whose names differ in the type's: included once for
// each, with KWEMU_NAMED(before, after) putting that name between two parts.

namespace KWEMU_NAMESPACE {

inline KWEMU_H KWEMU_NAMED(__float2, )(float x) {
    return KWEMU_H(x);
}
inline KWEMU_H KWEMU_NAMED(__float2, _rn)(float x) {
    return KWEMU_H(x);
}
inline KWEMU_H KWEMU_NAMED(__double2, )(double x) {
    return KWEMU_H(x);
}
inline KWEMU_H KWEMU_NAMED(__int2, _rn)(int x) {
    return KWEMU_H(x);
}
inline KWEMU_H KWEMU_NAMED(__uint2, _rn)(unsigned x) {
    return KWEMU_H(x);
}
inline float KWEMU_NAMED(__, 2float)(KWEMU_H x) {
    return x;
}
inline int KWEMU_NAMED(__, 2int_rn)(KWEMU_H x) {
    return __float2int_rn(x);
}
inline int KWEMU_NAMED(__, 2int_rz)(KWEMU_H x) {
    return __float2int_rz(x);
}
inline unsigned short KWEMU_NAMED(__, _as_ushort)(KWEMU_H x) {
    return kwemu_bit_cast<unsigned short>(x);
}
inline short KWEMU_NAMED(__, _as_short)(KWEMU_H x) {
    return kwemu_bit_cast<short>(x);
}
inline KWEMU_H KWEMU_NAMED(__ushort_as_, )(unsigned short x) {
    return kwemu_bit_cast<KWEMU_H>(x);
}
inline KWEMU_H KWEMU_NAMED(__short_as_, )(short x) {
    return kwemu_bit_cast<KWEMU_H>(x);
}
inline KWEMU_H2 KWEMU_NAMED(make_, 2)(KWEMU_H x, KWEMU_H y) {
    return {x, y};
}
inline KWEMU_H2 KWEMU_NAMED(__halves2, 2)(KWEMU_H x, KWEMU_H y) {
    return {x, y};
}
inline KWEMU_H2 KWEMU_NAMED(__float2, 2_rn)(float x) {
    return {KWEMU_H(x), KWEMU_H(x)};
}
inline KWEMU_H2 KWEMU_NAMED(__floats2, 2_rn)(float x, float y) {
    return {KWEMU_H(x), KWEMU_H(y)};
}
inline KWEMU_H2 KWEMU_NAMED(__float22, 2_rn)(float2 v) {
    return {KWEMU_H(v.x), KWEMU_H(v.y)};
}
inline float2 KWEMU_NAMED(__, 22float2)(KWEMU_H2 v) {
    return {float(v.x), float(v.y)};
}
inline KWEMU_H KWEMU_NAMED(__low2, )(KWEMU_H2 v) {
    return v.x;
}
inline KWEMU_H KWEMU_NAMED(__high2, )(KWEMU_H2 v) {
    return v.y;
}
inline KWEMU_H2 KWEMU_NAMED(__low2, 2)(KWEMU_H2 v) {
    return {v.x, v.x};
}
inline KWEMU_H2 KWEMU_NAMED(__high2, 2)(KWEMU_H2 v) {
    return {v.y, v.y};
}
inline KWEMU_H2 KWEMU_NAMED(__lows2, 2)(KWEMU_H2 a, KWEMU_H2 b) {
    return {a.x, b.x};
}
inline KWEMU_H2 KWEMU_NAMED(__highs2, 2)(KWEMU_H2 a, KWEMU_H2 b) {
    return {a.y, b.y};
}
inline KWEMU_H2 __lowhigh2highlow(KWEMU_H2 v) {
    return {v.y, v.x};
}

}  // namespace KWEMU_NAMESPACE
