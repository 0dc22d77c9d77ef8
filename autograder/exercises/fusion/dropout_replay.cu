// The mask is drawn again by the thread's own numbering: four of a call for the four
// elements that this thread has, which are not the four that forward gave them to.
// Who is dropped must follow from the element's index alone, whoever computes it.

// [exercise:dropout_replay]
__device__ uint4 philox(unsigned counter, unsigned seed) {
    const unsigned M0 = 0xD2511F53, M1 = 0xCD9E8D57;
    uint4 c = make_uint4(counter, 0, 0, 0);
    unsigned k0 = seed, k1 = 0;
    for (int k = 0; k < 10; ++k) {
        unsigned high0 = __umulhi(M0, c.x), low0 = M0 * c.x;
        unsigned high1 = __umulhi(M1, c.z), low1 = M1 * c.z;
        c = make_uint4(high1 ^ c.y ^ k0, low1, high0 ^ c.w ^ k1, low0);
        k0 += 0x9E3779B9;
        k1 += 0xBB67AE85;
    }
    return c;
}

__device__ unsigned word_of(uint4 r, int k) {
    return k == 0 ? r.x : k == 1 ? r.y : k == 2 ? r.z : r.w;
}

// GELU's derivative: Phi(x) + x * phi(x).
__device__ float gelu_slope(float x) {
    float below = 0.5f * (1.0f + erff(x * 0.70710678f));
    return below + x * 0.39894228f * expf(-0.5f * x * x);
}

__global__ void dropout_replay(const float* x, const float* slope,
                               float* grad, int n, unsigned seed,
                               float p) {
    // [hole]
    // [broken]
    // int threads = gridDim.x * blockDim.x;
    // int thread = blockIdx.x * blockDim.x + threadIdx.x;
    // uint4 r = philox(thread, seed);
    // for (int k = 0; k < 4; ++k) {
    //     int i = thread + k * threads;
    //     if (i < n) {
    //         float u = (word_of(r, k) >> 8) * 0x1p-24f;
    //         float kept = u >= p ? 1.0f / (1.0f - p) : 0.0f;
    //         grad[i] = kept * slope[i] * gelu_slope(x[i]);
    //     }
    // }
    // [/broken]
    int threads = gridDim.x * blockDim.x;
    int thread = blockIdx.x * blockDim.x + threadIdx.x;
    for (int k = 0; k < 4; ++k) {
        int i = thread + k * threads;
        if (i < n) {
            uint4 r = philox(i / 4, seed);
            float u = (word_of(r, i % 4) >> 8) * 0x1p-24f;
            float kept = u >= p ? 1.0f / (1.0f - p) : 0.0f;
            grad[i] = kept * slope[i] * gelu_slope(x[i]);
        }
    }
    // [/hole]
}
// [/exercise]
