// expect: is not row i
#include <kw/strips.cuh>
using namespace nvcuda;

using T = half;
constexpr int D = 64, KEYS = 64, WARPS = 4, PAD = 8;
constexpr int THREADS = 32 * WARPS;

// Launch: grid (ceil(q_len / 64), heads), block 128: 16 queries a warp.
__global__ void __launch_bounds__(THREADS)
    flash_wmma(const T* q, const T* k, const T* v, T* out, int q_len,
               int kv_len, float scale) {
    __shared__ __align__(128) T tiles[2 * KEYS][D + PAD];
    __shared__ __align__(128) float scores[WARPS][16][KEYS + 4];
    __shared__ __align__(128) float mends[WARPS][16];
    int warp = threadIdx.x / 32, first = blockIdx.x * 16 * WARPS;
    q += blockIdx.y * q_len * D;
    k += blockIdx.y * kv_len * D;
    v += blockIdx.y * kv_len * D;
    kw::bring_rows<16 * WARPS, THREADS>(tiles, q, first, q_len, D);
    __syncthreads();
    kw::Strip<T, D> strip(tiles + 16 * warp);  // queries, and sums of 0
    float top = -INFINITY, weight = 0.0f;
    for (int start = 0; start < kv_len; start += KEYS) {
        __syncthreads();
        kw::bring_rows<KEYS, THREADS>(tiles, k, start, kv_len, D);
        kw::bring_rows<KEYS, THREADS>(tiles + KEYS, v, start, kv_len, D);
        __syncthreads();
        strip.score(scores[warp], tiles);
        kw::weigh<T>(scores[warp], mends[warp], start, kv_len, scale, top,
                     weight);
        T* weights = reinterpret_cast<T*>(scores[warp]);
        // A fragment whose element (i, j) is mends[i]: columns 0 apart.
        kw::Sum mending;
        wmma::load_matrix_sync(mending, mends[warp], 0,
                               wmma::mem_col_major);
        for (int d = 0; d < D / 16; ++d)
            for (int i = 0; i < mending.num_elements; ++i)
                strip.sum[d].x[i] *= mends[warp][i];
        for (int n = 0; n < KEYS; n += 16) {
            kw::Left<T> p;
            wmma::load_matrix_sync(p, weights + n, 2 * (KEYS + 4));
            for (int d = 0; d < D / 16; ++d) {
                kw::Right<T> value;
                wmma::load_matrix_sync(value, &tiles[KEYS + n][16 * d],
                                       D + PAD);
                wmma::mma_sync(strip.sum[d], p, value, strip.sum[d]);
            }
        }
    }
    out += blockIdx.y * q_len * D;
    strip.store(out, first + 16 * warp, q_len, weight, scores[warp]);
}
