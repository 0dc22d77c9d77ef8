// The last rung: O = softmax(scale Q K^T) V with mma.sync. Scores and weights never leave
// the registers: the accumulators of Q K^T are, packed in pairs, the left operand of P V.
//
// A block takes 32 queries a warp and walks over the keys, BN at a time. K and V come
// through cp.async into two buffers each, so that the copy of a tile runs under the
// products of the one before, with one barrier a tile. Rows of shared memory keep their
// groups of 8 elements in another order in each of eight rows (an XOR), so that the
// eight rows of an ldmatrix lie in all 32 banks.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <kw/cp_async.cuh>
#include <kw/exp2.cuh>
#include <kw/ldmatrix.cuh>
#include <kw/mma.cuh>

constexpr float LN2 = 0.69314718f;

struct Strides {
    long long batch, head;  // in elements
    int row;                // the last dimension is contiguous
};

struct Shape {
    int heads, group;  // query heads; how many share a head of K and V
    int q_len, kv_len;
    int last;          // query i sees no key after i + last; 2^30 for all
    float scale_log2;  // scale * log2(e), above 0
    Strides q, k, v, out;
};

__device__ unsigned pack(float low, float high, __half) {
    __half2 both = __floats2half2_rn(low, high);
    return reinterpret_cast<unsigned&>(both);
}
__device__ unsigned pack(float low, float high, __nv_bfloat16) {
    __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<unsigned&>(both);
}

// What one thread copies of a tile: a group of eight in every at_once-th row.
template <int D, int THREADS>
struct Place {
    static constexpr int groups = D / 8, at_once = THREADS / groups;
    static_assert(at_once % 8 == 0,
                  "the order of groups is the same in every round");

    static __device__ int row() { return threadIdx.x / groups; }
    static __device__ int from(int pitch) {
        return row() * pitch + threadIdx.x % groups * 8;
    }
    static __device__ int to() {
        return row() * D + ((threadIdx.x % groups) ^ (row() % 8)) * 8;
    }
};

// Starts the copy of ROWS rows; those past `left` become zeros.
template <int ROWS, int D, int THREADS, typename T>
__device__ __forceinline__ void fetch(T* to, const T* from, int pitch,
                                      int left) {
    using Mine = Place<D, THREADS>;
    static_assert(ROWS % Mine::at_once == 0, "whole rounds");
#pragma unroll
    for (int r = 0; r < ROWS; r += Mine::at_once)
        kw::cp_async<16>(to + r * D, from + r * pitch,
                         Mine::row() + r < left);
}

// Launch: ceil(q_len / (32 WARPS)) * batch * heads blocks of 32 WARPS threads, with
// (32 WARPS + 4 BN) * D * 2 bytes of dynamic shared memory.
template <typename T, int D, int BN, int WARPS>
__global__ void __launch_bounds__(32 * WARPS, 8 / WARPS)
    flash_mma(const T* __restrict__ q, const T* __restrict__ k,
              const T* __restrict__ v, T* __restrict__ out,
              float* __restrict__ lse, Shape shape) {
    constexpr int THREADS = 32 * WARPS, BM = 32 * WARPS;
    extern __shared__ __align__(128) unsigned char memory[];
    T* queries = reinterpret_cast<T*>(memory);  // [BM][D]
    T* keys = queries + BM * D;                 // [2][BN][D]
    T* values = keys + 2 * BN * D;              // [2][BN][D]

    // The last tile first: under a causal mask it has the most to do.
    const int tiles = (shape.q_len + BM - 1) / BM;
    const int first = (tiles - 1 - blockIdx.x % tiles) * BM;
    const int plane = blockIdx.x / tiles;
    const int batch = plane / shape.heads, head = plane % shape.heads;
    q += batch * shape.q.batch + head * shape.q.head +
         static_cast<long long>(first) * shape.q.row;
    k += batch * shape.k.batch + head / shape.group * shape.k.head;
    v += batch * shape.v.batch + head / shape.group * shape.v.head;

    int stop =
        shape.kv_len;  // the first key that no query of this block sees
    stop = max(0, min(stop, first + BM + shape.last));
    const int steps = (stop + BN - 1) / BN;
    using Mine = Place<D, THREADS>;
    fetch<BM, D, THREADS>(queries + Mine::to(),
                          q + Mine::from(shape.q.row), shape.q.row,
                          shape.q_len - first);
    k += Mine::from(shape.k.row);
    v += Mine::from(shape.v.row);
    auto fetch_tile = [&](int step) {
        const int left = shape.kv_len - step * BN;
        T* to = keys + step % 2 * BN * D + Mine::to();
        fetch<BN, D, THREADS>(to, k, shape.k.row, left);
        fetch<BN, D, THREADS>(to + 2 * BN * D, v, shape.v.row, left);
        k += static_cast<long long>(BN) * shape.k.row;
        v += static_cast<long long>(BN) * shape.v.row;
        kw::cp_async_commit();
    };
    if (steps > 0) fetch_tile(0);

    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    // Where a lane's row of an ldmatrix begins. Group 2 j + h of row r lies at place
    // (2 j + h) ^ r % 8, which is (h ^ r % 8) ^ 2 j: one XOR leads from step to step.
    const int at_q =
        (warp * 32 + lane % 16) * D + ((lane / 16) ^ (lane % 8)) * 8;
    const int at_k =
        (lane % 8 + lane / 16 * 8) * D + ((lane / 8 % 2) ^ (lane % 8)) * 8;
    const int at_v = lane % 16 * D + ((lane / 16) ^ (lane % 8)) * 8;

    float sum[2][D / 8][4] = {};  // 32 queries x D, 16 x 8 a piece
    // Of rows lane / 4 + 8 h of each 16: a maximum, times scale_log2, and the weights
    // relative to it. A finite start: where all is hidden, exp2(-inf - top) is 0.
    float top[2][2], weight[2][2];
#pragma unroll
    for (int i = 0; i < 2; ++i)
        for (int h = 0; h < 2; ++h)
            top[i][h] = -FLT_MAX, weight[i][h] = 0.0f;

    for (int step = 0; step < steps; ++step) {
        // Tile `step` is there for all, and nobody reads the other buffers any more.
        kw::cp_async_wait<0>();
        __syncthreads();
        if (step + 1 < steps) fetch_tile(step + 1);
        const T* key_tile = keys + step % 2 * BN * D;
        const T* value_tile = values + step % 2 * BN * D;

        float score[2][BN / 8][4] = {};
#pragma unroll
        for (int d = 0; d < D; d += 16) {
            unsigned a[2][4];
#pragma unroll
            for (int i = 0; i < 2; ++i)
                kw::ldmatrix(a[i], queries + (at_q ^ d) + 16 * i * D);
#pragma unroll
            for (int n = 0; n < BN; n += 16) {
                unsigned b[4];
                kw::ldmatrix(b, key_tile + (at_k ^ d) + n * D);
                const unsigned low[2] = {b[0], b[1]},
                               high[2] = {b[2], b[3]};
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    kw::mma_sync<T>(score[i][n / 8], a[i], low,
                                    score[i][n / 8]);
                    kw::mma_sync<T>(score[i][n / 8 + 1], a[i], high,
                                    score[i][n / 8 + 1]);
                }
            }
        }

        // Only the last tiles hold keys that some query does not see.
        const int start = step * BN;
        int whole = shape.kv_len;
        whole = min(whole, first + 1 + shape.last);
        if (start + BN > whole) {
            const int row = first + warp * 32 + lane / 4,
                      column = start + lane % 4 * 2;
#pragma unroll
            for (int i = 0; i < 2; ++i)
#pragma unroll
                for (int n = 0; n < BN / 8; ++n)
#pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        const int key = column + 8 * n + e % 2;
                        const int query = row + 16 * i + e / 2 * 8;
                        bool seen = key < shape.kv_len;
                        seen &= key <= query + shape.last;
                        if (!seen) score[i][n][e] = -INFINITY;
                    }
        }

        // Each row's maximum: over the lane's own, then over the four lanes of the row.
        float highest[2][2];
        bool grows = false;
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                float most = score[i][0][2 * h];
#pragma unroll
                for (int n = 0; n < BN / 8; ++n)
                    most = fmaxf(most, fmaxf(score[i][n][2 * h],
                                             score[i][n][2 * h + 1]));
                most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, 1));
                most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, 2));
                highest[i][h] = most * shape.scale_log2;
                // What was summed relative to an older maximum is right as it is: it is
                // mended only where weights would grow past 2^8.
                grows |= highest[i][h] - top[i][h] > 8.0f;
            }
        if (__any_sync(0xffffffff, grows)) {
#pragma unroll
            for (int i = 0; i < 2; ++i)
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    const float higher = fmaxf(top[i][h], highest[i][h]);
                    const float mend = kw::exp2(top[i][h] - higher);
                    top[i][h] = higher;
                    weight[i][h] *= mend;
#pragma unroll
                    for (int n = 0; n < D / 8; ++n) {
                        sum[i][n][2 * h] *= mend;
                        sum[i][n][2 * h + 1] *= mend;
                    }
                }
        }

#pragma unroll
        for (int n = 0; n < BN / 8; n += 2) {
            // The pieces of 16 keys, as they lie in the accumulators, are the left
            // operand of the next product.
            unsigned p[2][4];
#pragma unroll
            for (int i = 0; i < 2; ++i)
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    const float(&pair)[4] = score[i][n + e / 2];
                    const int h = e % 2;
                    const float low = kw::exp2(
                        fmaf(pair[2 * h], shape.scale_log2, -top[i][h]));
                    const float high = kw::exp2(fmaf(
                        pair[2 * h + 1], shape.scale_log2, -top[i][h]));
                    weight[i][h] += low + high;
                    p[i][e] = pack(low, high, T());
                }
#pragma unroll
            for (int d = 0; d < D; d += 16) {
                unsigned b[4];
                kw::ldmatrix_trans(b, value_tile + (at_v ^ d) + n * 8 * D);
                const unsigned low[2] = {b[0], b[1]},
                               high[2] = {b[2], b[3]};
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    kw::mma_sync<T>(sum[i][d / 8], p[i], low,
                                    sum[i][d / 8]);
                    kw::mma_sync<T>(sum[i][d / 8 + 1], p[i], high,
                                    sum[i][d / 8 + 1]);
                }
            }
        }
    }

    // A row that saw nothing has weight 0 and sum 0: its output is 0.
    out += batch * shape.out.batch + head * shape.out.head;
    lse += static_cast<long long>(plane) * shape.q_len;
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            float all = weight[i][h];
            all += __shfl_xor_sync(0xffffffff, all, 1);
            all += __shfl_xor_sync(0xffffffff, all, 2);
            const int row = first + warp * 32 + 16 * i + 8 * h + lane / 4;
            if (row >= shape.q_len) continue;
            const float share = all > 0.0f ? 1.0f / all : 0.0f;
            T* to = out + row * shape.out.row + lane % 4 * 2;
#pragma unroll
            for (int n = 0; n < D / 8; ++n)
                *reinterpret_cast<unsigned*>(to + 8 * n) =
                    pack(sum[i][n][2 * h] * share,
                         sum[i][n][2 * h + 1] * share, T());
            if (lane % 4 == 0)
                lse[row] = all > 0.0f ? (top[i][h] + log2f(all)) * LN2
                                      : -INFINITY;
        }
}
