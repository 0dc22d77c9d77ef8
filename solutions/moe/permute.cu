// From tokens to experts and back: a counting sort of (token, slot) pairs by expert, in
// the order of tokens, and the rows that it moves.
//
// Over the pairs, a block to a part of them: `count` those of each expert; sum the
// counts up, expert by expert and part by part (scan.cu); `place` each pair at its row.
// Over the tokens, a warp to each: `send` its numbers to its k rows; `gather` the sum of
// its k rows, weighed. An expert's rows may begin at multiples of `round`, with zeros
// in between. And what happens to a row in between: `swiglu`.
#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace cg = cooperative_groups;

constexpr int WARPS = 8, THREADS = 32 * WARPS;
constexpr int BLOCKS = 6;  // of an SM: for eight, two kernels would spill
constexpr int FILLERS =
    16;  // warps that write zeros behind an expert's last row

__device__ bool is_expert(int expert, int experts) {
    return 0 <= expert && expert < experts;
}

// counts[expert][block]: how many pairs of a block's part have each expert.
extern "C" __global__ void __launch_bounds__(THREADS)
    count(const int* chosen, int* counts, int pairs, int experts,
          int part) {
    extern __shared__ int own[];
    for (int e = threadIdx.x; e < experts; e += THREADS) own[e] = 0;
    __syncthreads();
    const int first = blockIdx.x * part, last = min(first + part, pairs);
    for (int i = first + threadIdx.x; i < last; i += THREADS) {
        if (is_expert(chosen[i], experts)) atomicAdd(own + chosen[i], 1);
    }
    __syncthreads();
    for (int e = threadIdx.x; e < experts; e += THREADS)
        counts[static_cast<long long>(e) * gridDim.x + blockIdx.x] =
            own[e];
}

// Where each expert's rows begin and end, by one warp. starts[expert][block] is how many
// pairs come before, and behind the last of these is how many there are.
__device__ void find_ends(const int* starts, int* begins, int* ends,
                          int experts, int parts, int round,
                          int capacity) {
    const int lane = threadIdx.x % 32;
    int before = 0;
    for (int first = 0; first < experts; first += 32) {
        const int e = first + lane;
        int rows = 0;
        if (e < experts) {
            const long long at = static_cast<long long>(e) * parts;
            rows = min(starts[at + parts] - starts[at], capacity);
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
    place(const int* chosen, const int* starts, int* rows, int* begins,
          int* ends, int pairs, int experts, int part, int round,
          int capacity) {
    extern __shared__ int shared[];
    int* begin = shared;
    int* end = begin + experts;
    int* own = end + experts;  // own[warp][expert]
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int i = threadIdx.x; i < WARPS * experts; i += THREADS)
        own[i] = 0;
    if (warp == 0)
        find_ends(starts, begin, end, experts, gridDim.x, round, capacity);
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
        const int expert =
            i < last && is_expert(chosen[i], experts) ? chosen[i] : -1;
        // Lanes of one expert are placed in their order.
        const unsigned same = tile.match_any(expert);
        const int rank = __popc(same & ((1u << lane) - 1));
        int row = -1;
        if (expert >= 0) {
            row = own[warp * experts + expert] + rank;
            if (row - begin[expert] >= capacity) row = -1;
        }
        tile.sync();
        if (expert >= 0 && rank == 0)
            own[warp * experts + expert] += __popc(same);
        tile.sync();
        if (i < last) rows[i] = row;
    }
}

template <typename T, int WIDTH>
struct alignas(WIDTH * sizeof(T)) Pack {
    T of[WIDTH];
};

template <typename T, int WIDTH>
__device__ Pack<T, WIDTH>* packs_of(T* x, long long row, int columns) {
    return reinterpret_cast<Pack<T, WIDTH>*>(x + row * columns);
}

template <typename T, int WIDTH>
__device__ const Pack<T, WIDTH>* packs_of(const T* x, long long row,
                                          int columns) {
    return reinterpret_cast<const Pack<T, WIDTH>*>(x + row * columns);
}

// By one of FILLERS warps for each expert: zeros into the rows behind its last, up to a
// multiple of `round` from its first, and behind the last expert's up to `height`.
template <typename T, int WIDTH>
__device__ void fill_behind(int filler, T* out, const int* begins,
                            const int* ends, int columns, int experts,
                            int round, int height) {
    const int expert = filler / FILLERS, lane = threadIdx.x % 32;
    if (expert >= experts) return;
    const int rows = ends[expert] - begins[expert];
    int last = begins[expert] + (rows + round - 1) / round * round;
    if (expert == experts - 1) last = max(last, height);
    for (int row = ends[expert] + filler % FILLERS; row < last;
         row += FILLERS) {
        for (int c = lane; c < columns / WIDTH; c += 32)
            packs_of<T, WIDTH>(out, row, columns)[c] = {};
    }
}

// out[rows[token][j]] = x[token], times weights[token][j] if there are some; zeros
// behind each expert's last row.
template <typename T, typename W, int WIDTH>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    send(const T* x, const int* rows, const W* weights, const int* begins,
         const int* ends, T* out, int tokens, int k, int columns,
         int experts, int round, int height) {
    const int lane = threadIdx.x % 32;
    const int token = blockIdx.x * WARPS + threadIdx.x / 32;
    if (token >= tokens) {
        fill_behind<T, WIDTH>(token - tokens, out, begins, ends, columns,
                              experts, round, height);
        return;
    }
    const auto* from = packs_of<T, WIDTH>(x, token, columns);
    for (int c = lane; c < columns / WIDTH; c += 32) {
        const auto pack = from[c];
        for (int j = 0; j < k; ++j) {
            const long long pair = static_cast<long long>(token) * k + j;
            if (rows[pair] < 0) continue;
            auto scaled = pack;
            if (weights) {
                for (T& value : scaled.of)
                    value = T(static_cast<W>(value) * weights[pair]);
            }
            packs_of<T, WIDTH>(out, rows[pair], columns)[c] = scaled;
        }
    }
}

// out[token] = sum over j of weights[token][j] y[rows[token][j]]; without weights, the
// plain sum.
template <typename T, typename W, int WIDTH>
__global__ void __launch_bounds__(THREADS)
    gather(const T* y, const int* rows, const W* weights, T* out,
           int tokens, int k, int columns, int height) {
    const int lane = threadIdx.x % 32;
    const int token = blockIdx.x * WARPS + threadIdx.x / 32;
    if (token >= tokens) return;
    for (int c = lane; c < columns / WIDTH; c += 32) {
        W sum[WIDTH] = {};
        for (int j = 0; j < k; ++j) {
            const long long pair = static_cast<long long>(token) * k + j;
            if (static_cast<unsigned>(rows[pair]) >= height)
                continue;  // dropped
            const auto pack =
                packs_of<T, WIDTH>(y, rows[pair], columns)[c];
            const W weight = weights ? weights[pair] : W(1);
            for (int i = 0; i < WIDTH; ++i)
                sum[i] += weight * static_cast<W>(pack.of[i]);
        }
        Pack<T, WIDTH> made;
        for (int i = 0; i < WIDTH; ++i) made.of[i] = T(sum[i]);
        packs_of<T, WIDTH>(out, token, columns)[c] = made;
    }
}

template <typename W>
__device__ W summed(W value) {
    for (int step = 16; step > 0; step /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, step);
    return value;
}

// slopes[token][j] = sum over columns of grad[token] y[rows[token][j]].
template <typename T, typename W, int WIDTH>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    weigh(const T* grad, const T* y, const int* rows, W* slopes,
          int tokens, int k, int columns, int height) {
    const int lane = threadIdx.x % 32;
    const int token = blockIdx.x * WARPS + threadIdx.x / 32;
    if (token >= tokens) return;
    const auto* from = packs_of<T, WIDTH>(grad, token, columns);
    for (int j = 0; j < k; ++j) {
        const long long pair = static_cast<long long>(token) * k + j;
        const bool kept = static_cast<unsigned>(rows[pair]) < height;
        W sum = 0;
        for (int c = lane; kept && c < columns / WIDTH; c += 32) {
            const auto one = from[c];
            const auto other =
                packs_of<T, WIDTH>(y, rows[pair], columns)[c];
            for (int i = 0; i < WIDTH; ++i)
                sum += static_cast<W>(one.of[i]) *
                       static_cast<W>(other.of[i]);
        }
        sum = summed(sum);
        if (lane == 0) slopes[pair] = sum;
    }
}

template <typename W>
__device__ W sigmoid(W x) {
    return W(1) / (W(1) + exp(-x));
}

// hidden[row] = silu(gate) * up of one row of both, gate first.
template <typename T, typename W, int WIDTH>
__global__ void __launch_bounds__(THREADS)
    swiglu(const T* both, T* hidden, int height, int columns) {
    const int lane = threadIdx.x % 32;
    const int row = blockIdx.x * WARPS + threadIdx.x / 32;
    if (row >= height) return;
    const auto* gates = packs_of<T, WIDTH>(both, row, 2 * columns);
    const auto* ups = gates + columns / WIDTH;
    for (int c = lane; c < columns / WIDTH; c += 32) {
        const auto gate = gates[c], up = ups[c];
        Pack<T, WIDTH> made;
        for (int i = 0; i < WIDTH; ++i) {
            const W g = static_cast<W>(gate.of[i]);
            made.of[i] = T(g * sigmoid(g) * static_cast<W>(up.of[i]));
        }
        packs_of<T, WIDTH>(hidden, row, columns)[c] = made;
    }
}

// The way back through the weights and swiglu, a warp to each pair. `slopes` are of the
// hidden layer as if all weights were 1. What comes out: both's gradient; the hidden
// layer times its weight, which is what the last matrix's gradient is multiplied from;
// and the weights' gradient.
template <typename T, typename W, int WIDTH>
__global__ void __launch_bounds__(THREADS)
    swiglu_backward(const T* both, const T* slopes, const int* rows,
                    const W* weights, const int* begins, const int* ends,
                    T* of_both, T* weighed, W* of_weights, int pairs,
                    int columns, int experts, int round) {
    const int lane = threadIdx.x % 32;
    const int pair = blockIdx.x * WARPS + threadIdx.x / 32;
    if (pair >= pairs) {
        fill_behind<T, WIDTH>(pair - pairs, of_both, begins, ends,
                              2 * columns, experts, round, 0);
        fill_behind<T, WIDTH>(pair - pairs, weighed, begins, ends, columns,
                              experts, round, 0);
        return;
    }
    const int row = rows[pair], packs = columns / WIDTH;
    const W weight = weights[pair];
    W sum = 0;
    for (int c = lane; row >= 0 && c < packs; c += 32) {
        const auto gate = packs_of<T, WIDTH>(both, row, 2 * columns)[c];
        const auto up =
            packs_of<T, WIDTH>(both, row, 2 * columns)[packs + c];
        const auto slope = packs_of<T, WIDTH>(slopes, row, columns)[c];
        Pack<T, WIDTH> of_gate, of_up, hidden;
        for (int i = 0; i < WIDTH; ++i) {
            const W g = static_cast<W>(gate.of[i]),
                    u = static_cast<W>(up.of[i]);
            const W s = static_cast<W>(slope.of[i]), part = sigmoid(g);
            const W h = g * part * u;
            sum += h * s;
            hidden.of[i] = T(weight * h);
            of_gate.of[i] =
                T(weight * s * u * part * (W(1) + g * (W(1) - part)));
            of_up.of[i] = T(weight * s * g * part);
        }
        packs_of<T, WIDTH>(of_both, row, 2 * columns)[c] = of_gate;
        packs_of<T, WIDTH>(of_both, row, 2 * columns)[packs + c] = of_up;
        packs_of<T, WIDTH>(weighed, row, columns)[c] = hidden;
    }
    sum = summed(sum);
    if (lane == 0) of_weights[pair] = sum;
}
