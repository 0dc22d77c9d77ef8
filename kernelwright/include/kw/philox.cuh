// Philox-4x32: four random words that are a function of a counter and a key, so that
// any thread can draw those of any place, at any time, again.
//
//   uint4 words = kw::philox(counter, key);     // two numbers of 64 bits
//   uint4 words = kw::philox<7>(counter, key);  // the fewest rounds that pass BigCrush
//
// Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3 (2011), sections 3 and 5.
#pragma once

namespace kw {

#ifdef __CUDACC__

// One instruction. Of ``x * y >> 32`` in C++ the compiler makes two.
__device__ __forceinline__ uint2 multiply_wide(unsigned x, unsigned y) {
    uint2 words;
    asm("{ .reg .b64 both; mul.wide.u32 both, %2, %3; mov.b64 {%0, %1}, both; }"
        : "=r"(words.x), "=r"(words.y)
        : "r"(x), "r"(y));
    return words;
}

#else  // the emulator

__forceinline__ uint2 multiply_wide(unsigned x, unsigned y) {
    const unsigned long long both = static_cast<unsigned long long>(x) * y;
    return {static_cast<unsigned>(both), static_cast<unsigned>(both >> 32)};
}

#endif

template <int Rounds = 10>
__device__ __forceinline__ uint4 philox(unsigned long long counter,
                                        unsigned long long key) {
    uint4 c = {static_cast<unsigned>(counter), static_cast<unsigned>(counter >> 32), 0,
               0};
    unsigned k0 = static_cast<unsigned>(key), k1 = static_cast<unsigned>(key >> 32);
    for (int round = 0; round < Rounds; ++round) {
        const uint2 a = multiply_wide(0xD2511F53u, c.x);
        const uint2 b = multiply_wide(0xCD9E8D57u, c.z);
        c = {b.y ^ c.y ^ k0, b.x, a.y ^ c.w ^ k1, a.x};
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}

}  // namespace kw
