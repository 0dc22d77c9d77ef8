// expect: a comparison of its own
#include <cuda_fp16.h>
#include <kw/rows.cuh>

constexpr int KEYS = 64;

// Launch: rows / 16 blocks of one warp. scores, weights: (tiles, rows, KEYS),
// of which kv_len columns exist; mends: (tiles, rows); totals: (rows,).
__global__ void weigh_rows(const float* scores, half* weights,
                           float* mends, float* totals, int rows,
                           int kv_len, float scale) {
    __shared__ __align__(16) float tile[16][KEYS + 4];
    int r = threadIdx.x / 2, h = threadIdx.x % 2, own = blockIdx.x * 16;
    float2* row = reinterpret_cast<float2*>(tile[r]) + h;
    half2* packed = reinterpret_cast<half2*>(tile[r]) + h;
    float top = -INFINITY, weight = 0.0f;
    for (int start = 0; start < kv_len; start += KEYS) {
        __syncwarp();
        kw::bring_rows<16, 32>(tile, scores, own, rows, KEYS);
        __syncwarp();
        float2 s[KEYS / 4];
        float higher = top;
        for (int c = 0; c < KEYS / 4; ++c) {
            int key = start + 4 * c + 2 * h;
            s[c] = row[2 * c];
            s[c].x = key < kv_len ? s[c].x * scale : -INFINITY;
            s[c].y = key < kv_len ? s[c].y * scale : -INFINITY;
            higher = fmaxf(higher, fmaxf(s[c].x, s[c].y));
        }
        higher = fmaxf(higher, __shfl_xor_sync(0xffffffff, higher, 1));
        float mend = __expf(top - higher);
        top = higher;
        weight *= mend;
        mends[own + r] = mend;
        __syncwarp();
        for (int c = 0; c < KEYS / 4; ++c) {
            float low = __expf(s[c].x - top), high = __expf(s[c].y - top);
            weight += low + high;
            packed[2 * c] = __floats2half2_rn(low, high);
        }
        __syncwarp();
        for (int i = 0; i < 16; ++i) {
            half* from = reinterpret_cast<half*>(tile[i]) + threadIdx.x;
            half* to = weights + (own + i) * KEYS + threadIdx.x;
            to[0] = from[0], to[32] = from[32];
        }
        scores += rows * KEYS, weights += rows * KEYS, mends += rows;
    }
    totals[own + r] = weight + __shfl_xor_sync(0xffffffff, weight, 1);
}
