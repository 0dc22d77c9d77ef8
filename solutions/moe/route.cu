// Which k experts each token goes to, and with what weight.
//
// A warp to each token, each lane with every 32nd expert's logit in registers: k times
// the greatest of what is left is found by shuffles. Of equal logits the lower expert
// comes first; NaN counts as the greatest, as in torch.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

constexpr int WARPS = 8, THREADS = 32 * WARPS;
constexpr unsigned EVERYONE = 0xffffffffu;

template <typename W>
__device__ bool is_above(W one, W other) {
    return one > other || (one != one && other == other);
}

template <typename W>
__device__ W largest(W value) {
    for (int step = 16; step > 0; step /= 2) {
        const W other = __shfl_xor_sync(EVERYONE, value, step);
        if (is_above(other, value)) value = other;
    }
    return value;
}

template <typename W>
__device__ W summed(W value) {
    for (int step = 16; step > 0; step /= 2)
        value += __shfl_xor_sync(EVERYONE, value, step);
    return value;
}

// A token's logits: expert s * 32 + lane in slot s; the slots used are set in the mask.
template <typename T, typename W, int SLOTS>
struct Logits {
    W of[SLOTS];
    unsigned used = 0;

    __device__ Logits(const T* row, int experts, int lane) {
#pragma unroll
        for (int s = 0; s < SLOTS; ++s) {
            if (s * 32 + lane >= experts) continue;
            of[s] = static_cast<W>(row[s * 32 + lane]);
            used |= 1u << s;
        }
    }

    // The lane's greatest of the slots that are left, and which it is; -1 for none.
    __device__ int best_of(unsigned left, W& best) const {
        int slot = -1;
#pragma unroll
        for (int s = 0; s < SLOTS; ++s) {
            if (!(left >> s & 1) || (slot >= 0 && !is_above(of[s], best)))
                continue;
            best = of[s];
            slot = s;
        }
        return slot;
    }

    __device__ W sum_of_exps(W high) const {
        W sum = 0;
#pragma unroll
        for (int s = 0; s < SLOTS; ++s)
            if (used >> s & 1) sum += exp(of[s] - high);
        return summed(sum);
    }
};

// weights[token][j], chosen[token][j]: by falling logit. The weights are shares of all
// experts' exponentials, or of the chosen ones' alone.
template <typename T, typename W, int SLOTS>
__global__ void __launch_bounds__(THREADS)
    route(const T* logits, W* weights, int* chosen, int tokens,
          int experts, int k, int of_chosen) {
    const int lane = threadIdx.x % 32;
    const int token = blockIdx.x * WARPS + threadIdx.x / 32;
    if (token >= tokens) return;
    const Logits<T, W, SLOTS> mine(
        logits + static_cast<long long>(token) * experts, experts, lane);
    weights += static_cast<long long>(token) * k;
    chosen += static_cast<long long>(token) * k;
    unsigned left = mine.used;
    W high = 0, sum = 0;
    for (int j = 0; j < k; ++j) {
        W best = 0;
        const int slot = mine.best_of(left, best);
        int expert = slot < 0 ? experts : slot * 32 + lane;
        for (int step = 16; step > 0; step /= 2) {
            const W other = __shfl_xor_sync(EVERYONE, best, step);
            const int whose = __shfl_xor_sync(EVERYONE, expert, step);
            if (whose == experts) continue;
            const bool equal =
                !is_above(best, other) && !is_above(other, best);
            if (expert == experts || is_above(other, best) ||
                (equal && whose < expert)) {
                best = other;
                expert = whose;
            }
        }
        if (expert % 32 == lane) left &= ~(1u << expert / 32);
        if (j == 0) high = best;
        const W share = exp(best - high);
        sum += share;
        if (j % 32 == lane) {  // the lane that will divide it
            chosen[j] = expert;
            weights[j] = share;
        }
    }
    if (!of_chosen) sum = mine.sum_of_exps(high);
    for (int j = lane; j < k; j += 32) weights[j] /= sum;
}

// The logits' gradient: weights[j] (slopes[j] - the sum of weights * slopes) for those
// chosen; for others minus their share of that sum, if weights are shares of all.
template <typename T, typename W, int SLOTS>
__global__ void __launch_bounds__(THREADS)
    route_backward(const T* logits, const W* weights, const int* chosen,
                   const W* slopes, T* out, int tokens, int experts, int k,
                   int of_chosen) {
    const int lane = threadIdx.x % 32;
    const int token = blockIdx.x * WARPS + threadIdx.x / 32;
    if (token >= tokens) return;
    const long long row = static_cast<long long>(token) * experts;
    const long long first = static_cast<long long>(token) * k;
    W dot = 0;
    for (int j = lane; j < k; j += 32)
        dot += weights[first + j] * slopes[first + j];
    dot = summed(dot);
    const Logits<T, W, SLOTS> mine(logits + row, experts, lane);
    W high = 0, sum = 1;
    if (!of_chosen) {
        const int slot = mine.best_of(mine.used, high);
        high = largest(slot < 0 ? -static_cast<W>(INFINITY) : high);
        sum = mine.sum_of_exps(high);
    }
#pragma unroll
    for (int s = 0; s < SLOTS; ++s) {
        if (!(mine.used >> s & 1)) continue;
        const W share = of_chosen ? W(0) : exp(mine.of[s] - high) / sum;
        out[row + s * 32 + lane] = static_cast<T>(-share * dot);
    }
    __syncwarp();
    for (int j = lane; j < k; j += 32) {
        out[row + chosen[first + j]] =
            static_cast<T>(weights[first + j] * (slopes[first + j] - dot));
    }
}
