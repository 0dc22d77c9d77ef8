// expect: sectors
#include <cuda_fp16.h>

union Pack {
    float4 whole;      // what one instruction moves
    __half2 pairs[4];  // what it holds
};

__global__ void rms_norm(const __half* x, const __half* weight,
                         __half* out, int rows, int columns, float eps) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    int lane = threadIdx.x % 32;
    if (row >= rows) return;  // all 32 lanes of a warp together
    int packs = columns / 8;  // in a row
    const float4* in =
        reinterpret_cast<const float4*>(x) + (long long)row * packs;
    float4* to = reinterpret_cast<float4*>(out) + (long long)row * packs;
    const float4* w = reinterpret_cast<const float4*>(weight);
    Pack v[8];  // this lane's part of the row
    float squares = 0.0f;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        int i = lane * 8 + k;
        if (i < packs) {
            v[k].whole = in[i];
            for (int j = 0; j < 4; ++j) {
                float2 pair = __half22float2(v[k].pairs[j]);
                squares += pair.x * pair.x + pair.y * pair.y;
            }
        }
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        squares += __shfl_xor_sync(0xffffffff, squares, offset);
    }
    float scale = rsqrtf(squares / columns + eps);
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        int i = lane * 8 + k;
        if (i < packs) {
            Pack wk;
            wk.whole = w[i];
            for (int j = 0; j < 4; ++j) {
                float2 pair = __half22float2(v[k].pairs[j]);
                float2 by = __half22float2(wk.pairs[j]);
                v[k].pairs[j] = __floats2half2_rn(pair.x * scale * by.x,
                                                  pair.y * scale * by.y);
            }
            to[i] = v[k].whole;
        }
    }
}
