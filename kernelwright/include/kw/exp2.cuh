// 2 to the power of x in one instruction of the special function unit, to about 2 ulp;
// results below the smallest normal float are 0, and -infinity gives 0.
//
//   float p = kw::exp2(x);
//
// exp2f is as exact and keeps denormals, which costs three more instructions.
#pragma once

namespace kw {

#ifdef __CUDACC__

__device__ __forceinline__ float exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#else  // the emulator

__forceinline__ float exp2(float x) {
    float y = ::exp2f(x);
    return y < 1.17549435e-38f ? 0.0f : y;
}

#endif

}  // namespace kw
