// From tokens to experts and back: a counting sort of (token, slot) pairs by expert, in
// the order of tokens, and the rows that it moves.
//
// Over the pairs, a block to a part of them: `count` those of each expert; sum the
// counts up, expert by expert and part by part (scan.cu); `place` each pair at its row.
// Over the tokens, a warp to each: `send` its numbers to its k rows; `gather` the sum of
// its k rows, weighed. An expert's rows may begin at multiples of `round`, with zeros
// in between.
#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace cg = cooperative_groups;

constexpr int WARPS = 8, THREADS = 32 * WARPS;

__device__ bool is_expert(int expert, int experts) {
    return 0 <= expert && expert < experts;
}

// counts[expert][block]: how many pairs of a block's part have each expert.
extern "C" __global__ void __launch_bounds__(THREADS)
    count(const int* chosen, int* counts, int pairs, int experts, int part) {
    extern __shared__ int own[];
    for (int e = threadIdx.x; e < experts; e += THREADS) own[e] = 0;
    __syncthreads();
    const int first = blockIdx.x * part, last = min(first + part, pairs);
    for (int i = first + threadIdx.x; i < last; i += THREADS) {
        if (is_expert(chosen[i], experts)) atomicAdd(own + chosen[i], 1);
    }
    __syncthreads();
    for (int e = threadIdx.x; e < experts; e += THREADS)
        counts[static_cast<long long>(e) * gridDim.x + blockIdx.x] = own[e];
}

// Where each expert's rows begin and end, by one warp. starts[expert][block] is how many
// pairs come before, and behind the last of these is how many there are.
__device__ void find_ends(const int* starts, int* begins, int* ends, int experts,
                          int parts, int round) {
    const int lane = threadIdx.x % 32;
    int before = 0;
    for (int first = 0; first < experts; first += 32) {
        const int e = first + lane;
        int rows = 0;
        if (e < experts) {
            const long long at = static_cast<long long>(e) * parts;
            rows = starts[at + parts] - starts[at];
        }
        const int whole = (rows + round - 1) / round * round;
        int up_to = whole;
        for (int step = 1; step < 32; step *= 2) {
            const int other = __shfl_up_sync(0xffffffffu, up_to, step);
            if (lane >= step) up_to += other;
        }
        if (e < experts) {
            begins[e] = before + up_to - whole;
            ends[e] = begins[e] + rows;
        }
        before += __shfl_sync(0xffffffffu, up_to, 31);
    }
}

// rows[pair]: in which row a pair's numbers go; -1 for a pair without an expert, or one
// past its expert's capacity. Also where each expert's rows begin, and end.
extern "C" __global__ void __launch_bounds__(THREADS)
    place(const int* chosen, const int* starts, int* rows, int* begins, int* ends,
          int pairs, int experts, int part, int round, int capacity) {
    extern __shared__ int shared[];
    int* begin = shared;
    int* end = begin + experts;
    int* own = end + experts;  // own[warp][expert]
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int i = threadIdx.x; i < WARPS * experts; i += THREADS) own[i] = 0;
    if (warp == 0)
        find_ends(starts, begin, end, experts, gridDim.x, round);
    __syncthreads();
    const int a_warp = part / WARPS;  // a multiple of 32
    const int first = blockIdx.x * part + warp * a_warp;
    const int last = min(first + a_warp, pairs);
    for (int i = first + lane; i < last; i += 32) {
        if (is_expert(chosen[i], experts))
            atomicAdd(own + warp * experts + chosen[i], 1);
    }
    __syncthreads();
    for (int e = threadIdx.x; e < experts; e += THREADS) {
        const long long at = static_cast<long long>(e) * gridDim.x;
        int row = begin[e] + starts[at + blockIdx.x] - starts[at];
        for (int w = 0; w < WARPS; ++w) {
            const int here = own[w * experts + e];
            own[w * experts + e] = row;
            row += here;
        }
        if (blockIdx.x == 0) begins[e] = begin[e], ends[e] = end[e];
    }
    __syncthreads();
    const auto tile = cg::tiled_partition<32>(cg::this_thread_block());
    for (int i = first + lane; i - lane < last; i += 32) {
        const int expert = i < last && is_expert(chosen[i], experts) ? chosen[i] : -1;
        // Lanes of one expert are placed in their order.
        const unsigned same = tile.match_any(expert);
        const int rank = __popc(same & ((1u << lane) - 1));
        int row = -1;
        if (expert >= 0) {
            row = own[warp * experts + expert] + rank;
            if (row - begin[expert] >= capacity) row = -1;
        }
        tile.sync();
        if (expert >= 0 && rank == 0) own[warp * experts + expert] += __popc(same);
        tile.sync();
        if (i < last) rows[i] = row;
    }
}

template <typename T>
struct alignas(16) Pack {
    static constexpr int WIDTH = 16 / sizeof(T);
    T of[WIDTH];
};

// out[rows[token][j]] = x[token], times weights[token][j] if there are some; zeros
// between an expert's last row and the next one's first.
template <typename T, typename W>
__global__ void __launch_bounds__(THREADS)
    send(const T* x, const int* rows, const W* weights, const int* begins,
         const int* ends, T* out, int tokens, int k, int columns, int experts,
         long long all_rows) {
    using P = Pack<T>;
    const int lane = threadIdx.x % 32, packs = columns / P::WIDTH;
    const int one = blockIdx.x * WARPS + threadIdx.x / 32;
    if (one < tokens) {
        const P* from =
            reinterpret_cast<const P*>(x + static_cast<long long>(one) * columns);
        for (int c = lane; c < packs; c += 32) {
            const P pack = from[c];
            for (int j = 0; j < k; ++j) {
                const int row = rows[static_cast<long long>(one) * k + j];
                if (row < 0) continue;
                P scaled = pack;
                if (weights) {
                    const W weight = weights[static_cast<long long>(one) * k + j];
                    for (int i = 0; i < P::WIDTH; ++i)
                        scaled.of[i] = T(static_cast<W>(pack.of[i]) * weight);
                }
                reinterpret_cast<P*>(out + static_cast<long long>(row) * columns)[c] =
                    scaled;
            }
        }
        return;
    }
    const int expert = one - tokens;
    if (expert >= experts) return;
    const long long next = expert + 1 < experts ? begins[expert + 1] : all_rows;
    for (long long row = ends[expert]; row < next; ++row) {
        for (int c = lane; c < packs; c += 32)
            reinterpret_cast<P*>(out + row * columns)[c] = P{};
    }
}

// out[token] = sum over j of weights[token][j] y[rows[token][j]]; without weights, the
// plain sum.
template <typename T, typename W>
__global__ void __launch_bounds__(THREADS)
    gather(const T* y, const int* rows, const W* weights, T* out, int tokens, int k,
           int columns) {
    using P = Pack<T>;
    const int lane = threadIdx.x % 32, packs = columns / P::WIDTH;
    const int token = blockIdx.x * WARPS + threadIdx.x / 32;
    if (token >= tokens) return;
    for (int c = lane; c < packs; c += 32) {
        W sum[P::WIDTH] = {};
        for (int j = 0; j < k; ++j) {
            const long long pair = static_cast<long long>(token) * k + j;
            if (rows[pair] < 0) continue;
            const P pack = reinterpret_cast<const P*>(
                y + static_cast<long long>(rows[pair]) * columns)[c];
            const W weight = weights ? weights[pair] : W(1);
            for (int i = 0; i < P::WIDTH; ++i)
                sum[i] += weight * static_cast<W>(pack.of[i]);
        }
        P made;
        for (int i = 0; i < P::WIDTH; ++i) made.of[i] = T(sum[i]);
        reinterpret_cast<P*>(out + static_cast<long long>(token) * columns)[c] = made;
    }
}

// slopes[token][j] = sum over columns of grad[token] y[rows[token][j]].
template <typename T, typename W>
__global__ void __launch_bounds__(THREADS)
    weigh(const T* grad, const T* y, const int* rows, W* slopes, int tokens, int k,
          int columns) {
    using P = Pack<T>;
    const int lane = threadIdx.x % 32, packs = columns / P::WIDTH;
    const int token = blockIdx.x * WARPS + threadIdx.x / 32;
    if (token >= tokens) return;
    const P* from =
        reinterpret_cast<const P*>(grad + static_cast<long long>(token) * columns);
    for (int j = 0; j < k; ++j) {
        const long long pair = static_cast<long long>(token) * k + j;
        W sum = 0;
        for (int c = lane; rows[pair] >= 0 && c < packs; c += 32) {
            const P one = from[c], other = reinterpret_cast<const P*>(
                y + static_cast<long long>(rows[pair]) * columns)[c];
            for (int i = 0; i < P::WIDTH; ++i)
                sum += static_cast<W>(one.of[i]) * static_cast<W>(other.of[i]);
        }
        for (int step = 16; step > 0; step /= 2)
            sum += __shfl_xor_sync(0xffffffffu, sum, step);
        if (lane == 0) slopes[pair] = sum;
    }
}
