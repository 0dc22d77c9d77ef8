// Floating-point functions under CUDA's names. What C has (expf, tanhf, fmaf, ...) comes
// from <math.h>; here is what only CUDA has. The fast intrinsics are no less exact here
// than the others: a GPU's error in them is not modelled.
#ifndef KWEMU_FLOAT_MATH_H
#define KWEMU_FLOAT_MATH_H

constexpr double kwemu_pi = 3.14159265358979323846;

// ---- fast intrinsics -------------------------------------------------------------------

inline float __expf(float x) {
    return expf(x);
}
inline float __exp2f(float x) {
    return exp2f(x);
}
inline float __exp10f(float x) {
    return static_cast<float>(pow(10.0, x));
}
inline float __logf(float x) {
    return logf(x);
}
inline float __log2f(float x) {
    return log2f(x);
}
inline float __log10f(float x) {
    return log10f(x);
}
inline float __powf(float x, float y) {
    return powf(x, y);
}
inline float __sinf(float x) {
    return sinf(x);
}
inline float __cosf(float x) {
    return cosf(x);
}
inline float __tanf(float x) {
    return tanf(x);
}
inline float __tanhf(float x) {
    return tanhf(x);
}
inline void __sincosf(float x, float* s, float* c) {
    *s = sinf(x);
    *c = cosf(x);
}
inline float __fdividef(float x, float y) {
    return x / y;
}
inline float fdividef(float x, float y) {
    return x / y;
}
inline float __saturatef(float x) {
    return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f;
}

// ---- roots and reciprocals -------------------------------------------------------------

inline float rsqrtf(float x) {
    return 1.0f / sqrtf(x);
}
inline double rsqrt(double x) {
    return 1.0 / sqrt(x);
}
inline float rsqrt(float x) {
    return rsqrtf(x);
}
inline float __frsqrt_rn(float x) {
    return static_cast<float>(1.0 / sqrt(double(x)));
}
inline float rcbrtf(float x) {
    return 1.0f / cbrtf(x);
}
inline double rcbrt(double x) {
    return 1.0 / cbrt(x);
}
inline float rhypotf(float x, float y) {
    return 1.0f / hypotf(x, y);
}
inline double rhypot(double x, double y) {
    return 1.0 / hypot(x, y);
}
inline float norm3df(float x, float y, float z) {
    return static_cast<float>(sqrt(double(x) * x + double(y) * y + double(z) * z));
}
inline float rnorm3df(float x, float y, float z) {
    return 1.0f / norm3df(x, y, z);
}
inline float norm4df(float x, float y, float z, float w) {
    return static_cast<float>(
        sqrt(double(x) * x + double(y) * y + double(z) * z + double(w) * w));
}
inline float rnorm4df(float x, float y, float z, float w) {
    return 1.0f / norm4df(x, y, z, w);
}

// ---- angles in half turns, and the normal distribution ---------------------------------

inline double sinpi(double x) {
    return sin(kwemu_pi * fmod(x, 2.0));
}
inline double cospi(double x) {
    return cos(kwemu_pi * fmod(x, 2.0));
}
inline float sinpif(float x) {
    return static_cast<float>(sinpi(x));
}
inline float cospif(float x) {
    return static_cast<float>(cospi(x));
}
inline void sincospif(float x, float* s, float* c) {
    *s = sinpif(x);
    *c = cospif(x);
}
inline double normcdf(double x) {
    return 0.5 * erfc(-x * 0.70710678118654752440);
}
inline float normcdff(float x) {
    return static_cast<float>(normcdf(x));
}
inline double erfcx(double x) {
    return exp(x * x) * erfc(x);
}
inline float erfcxf(float x) {
    return static_cast<float>(erfcx(x));
}

// Newton's method on erf, from Winitzki's closed form: three steps reach a double.
inline double erfinv(double y) {
    if (!(y > -1.0 && y < 1.0))
        return y == 1.0 ? HUGE_VAL : y == -1.0 ? -HUGE_VAL : NAN;
    double l = log1p(-y * y), a = 0.147, b = 2.0 / (kwemu_pi * a) + 0.5 * l;
    double x = copysign(sqrt(sqrt(b * b - l / a) - b), y);
    for (int i = 0; i < 3; ++i)
        x -= (erf(x) - y) / (2.0 / sqrt(kwemu_pi) * exp(-x * x));
    return x;
}
inline float erfinvf(float y) {
    return static_cast<float>(erfinv(y));
}
inline double normcdfinv(double p) {
    return 1.41421356237309504880 * erfinv(2.0 * p - 1.0);
}
inline float normcdfinvf(float p) {
    return static_cast<float>(normcdfinv(p));
}

// ---- one rounding, by name -------------------------------------------------------------
// The suffix fixes the rounding; directed ones need the processor's mode, which the
// runtime sets and resets with no other thread's turn in between.

#define KWEMU_ROUNDED(name, type, number, parameters, a, b, c) \
    inline type name##_rn parameters {                         \
        return kwemu_round_##type(number, 0, a, b, c);         \
    }                                                          \
    inline type name##_rd parameters {                         \
        return kwemu_round_##type(number, 1, a, b, c);         \
    }                                                          \
    inline type name##_ru parameters {                         \
        return kwemu_round_##type(number, 2, a, b, c);         \
    }                                                          \
    inline type name##_rz parameters {                         \
        return kwemu_round_##type(number, 3, a, b, c);         \
    }
#define KWEMU_ROUNDED_ALL(prefix, fma, type)                           \
    KWEMU_ROUNDED(__##prefix##add, type, 0, (type x, type y), x, y, 0) \
    KWEMU_ROUNDED(__##prefix##sub, type, 1, (type x, type y), x, y, 0) \
    KWEMU_ROUNDED(__##prefix##mul, type, 2, (type x, type y), x, y, 0) \
    KWEMU_ROUNDED(__##prefix##div, type, 3, (type x, type y), x, y, 0) \
    KWEMU_ROUNDED(__##fma, type, 4, (type x, type y, type z), x, y, z) \
    KWEMU_ROUNDED(__##prefix##sqrt, type, 5, (type x), x, 0, 0)        \
    KWEMU_ROUNDED(__##prefix##rcp, type, 3, (type x), 1, x, 0)
KWEMU_ROUNDED_ALL(f, fmaf, float)
KWEMU_ROUNDED_ALL(d, fma, double)
#undef KWEMU_ROUNDED_ALL
#undef KWEMU_ROUNDED

#endif  // KWEMU_FLOAT_MATH_H
