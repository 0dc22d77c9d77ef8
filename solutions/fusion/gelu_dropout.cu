// GELU and dropout in one kernel: who is dropped follows from the element's index and
// a seed by Philox-4x32-10, four numbers a call, so that no mask is in memory and
// backward can draw the same one again.

// [exercise:gelu_dropout]
__device__ uint4 philox(unsigned counter, unsigned seed) {
    const unsigned M0 = 0xD2511F53, M1 = 0xCD9E8D57;  // the multipliers
    const unsigned W0 = 0x9E3779B9, W1 = 0xBB67AE85;  // added to the key
    uint4 c = make_uint4(counter, 0, 0, 0);
    unsigned k0 = seed, k1 = 0;
    // [hole]
    for (int round = 0; round < 10; ++round) {
        unsigned high0 = __umulhi(M0, c.x), low0 = M0 * c.x;
        unsigned high1 = __umulhi(M1, c.z), low1 = M1 * c.z;
        c = make_uint4(high1 ^ c.y ^ k0, low1, high0 ^ c.w ^ k1, low0);
        k0 += W0;
        k1 += W1;
    }
    // [/hole]
    return c;
}

// GELU of x, scaled by 1 / (1 - p), where it is kept; else 0.
__device__ float kept_gelu(float x, unsigned word, float p) {
    // [hole]
    float u = (word >> 8) * 0x1p-24f;
    float gelu = 0.5f * x * (1.0f + erff(x * 0.70710678f));
    return u >= p ? gelu / (1.0f - p) : 0.0f;
    // [/hole]
}

__global__ void gelu_dropout(const float* x, float* out, int n,
                             unsigned seed, float p) {
    // [hole]
    int thread = blockIdx.x * blockDim.x + threadIdx.x;
    int first = 4 * thread;
    if (first >= n) return;
    uint4 r = philox(thread, seed);
    if (first + 4 <= n) {
        float4 v = reinterpret_cast<const float4*>(x)[thread];
        reinterpret_cast<float4*>(out)[thread] =
            make_float4(kept_gelu(v.x, r.x, p), kept_gelu(v.y, r.y, p),
                        kept_gelu(v.z, r.z, p), kept_gelu(v.w, r.w, p));
    } else {
        const unsigned word[4] = {r.x, r.y, r.z, r.w};
        for (int k = 0; first + k < n; ++k) {
            out[first + k] = kept_gelu(x[first + k], word[k], p);
        }
    }
    // [/hole]
}
// [/exercise]
