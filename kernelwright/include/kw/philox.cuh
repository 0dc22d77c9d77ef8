// Philox-4x32-10: four random words that are a function of a counter and a key, so
// that any thread can draw those of any place, at any time, again.
//
//   uint4 words = kw::philox(counter, key);  // two numbers of 64 bits
//
// Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3 (2011), section 3.
#pragma once

namespace kw {

__device__ __forceinline__ uint4 philox(unsigned long long counter,
                                        unsigned long long key) {
    uint4 c = {static_cast<unsigned>(counter), static_cast<unsigned>(counter >> 32), 0,
               0};
    unsigned k0 = static_cast<unsigned>(key), k1 = static_cast<unsigned>(key >> 32);
    for (int round = 0; round < 10; ++round) {
        const unsigned long long a = 0xD2511F53ull * c.x;
        const unsigned long long b = 0xCD9E8D57ull * c.z;
        c = {static_cast<unsigned>(b >> 32) ^ c.y ^ k0, static_cast<unsigned>(b),
             static_cast<unsigned>(a >> 32) ^ c.w ^ k1, static_cast<unsigned>(a)};
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}

}  // namespace kw
