// The normal distribution and the logistic function for results of 16 bits: some ten
// instructions each, where erff and tanhf take forty.
//
//   float below = kw::normal_cdf(x);  // the share of a normal distribution below x
//   float s = kw::sigmoid(x);         // 1 / (1 + exp(-x))
//
// normal_cdf: log2 of the share above t is close to a parabola, so that a polynomial of
// degree 5, fitted on 0 <= t <= 6, is off by 3.7e-4 of the share at most. Below -6,
// where torch's own formula has 0 in fp32, it goes to 0 as well.
#pragma once

#include <kw/exp2.cuh>

namespace kw {

__device__ __forceinline__ float normal_cdf(float x) {
    const float t = fabsf(x);
    float power = -2.0168471e-4f;
    power = fmaf(power, t, 4.4676098e-3f);
    power = fmaf(power, t, -4.2832747e-2f);
    power = fmaf(power, t, -4.7278568e-1f);
    power = fmaf(power, t, -1.1443996f);
    power = fmaf(power, t, -1.0005318f);
    const float above = exp2(power);
    return x > 0.0f ? 1.0f - above : above;  // NaN: above is NaN too
}

#ifdef __CUDACC__

__device__ __forceinline__ float reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#else  // the emulator

__forceinline__ float reciprocal(float x) {
    return 1.0f / x;
}

#endif

__device__ __forceinline__ float sigmoid(float x) {
    return reciprocal(1.0f + exp2(-1.4426950f * x));
}

}  // namespace kw
