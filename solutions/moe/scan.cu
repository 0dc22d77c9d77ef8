// out[i] = x[0] + … + x[i], or without x[i]: in one pass over memory.
//
// A block scans one tile. What lies before it is found by looking back: each block says
// what its tile adds as soon as it knows, and what all tiles up to its own add as soon as
// it knows that; a warp reads what 32 tiles before have said, and goes on to the 32
// before these until one of them knows all. Tiles are taken in the order in which blocks
// begin, so that no block waits for one that has not begun.
// Source: Merrill and Garland, Single-pass Parallel Prefix Scan with Decoupled
// Look-back (NVIDIA, 2016).
#include <cuda_runtime.h>

constexpr int WIDTH = 4;  // numbers in 16 bytes

// What a tile has said: how much it knows, above a sum of 32 bits, read and written at
// once.
constexpr unsigned long long NOTHING = 0, ITS_OWN = 1, ALL = 2;

struct alignas(16) Four {
    int of[WIDTH];
};

__device__ void say(long long* said, unsigned long long what, int sum) {
    *static_cast<volatile long long*>(said) =
        static_cast<long long>(what << 32 | static_cast<unsigned>(sum));
}

// Sums up to each lane.
__device__ int scan_lanes(int value, int lane) {
    for (int step = 1; step < 32; step *= 2) {
        const int before = __shfl_up_sync(0xffffffffu, value, step);
        if (lane >= step) value += before;
    }
    return value;
}

// By a whole warp: the sum of all tiles before this one.
__device__ int look_back(const long long* said, int tile, int lane) {
    int sum = 0;
    for (int last = tile - 1; last >= 0; last -= 32) {
        const int mine = last - lane;  // lane 0 is nearest
        unsigned long long found =
            ALL << 32;  // before the first tile there is 0
        if (mine >= 0) {
            do {
                found =
                    *static_cast<const volatile long long*>(said + mine);
            } while (found >> 32 == NOTHING);
        }
        // The nearest that knows all; what lies before it is in its sum.
        const unsigned all =
            __ballot_sync(0xffffffffu, found >> 32 == ALL);
        const int nearest = all ? __ffs(all) - 1 : 31;
        int part = lane <= nearest ? static_cast<int>(found) : 0;
        for (int step = 16; step > 0; step /= 2)
            part += __shfl_xor_sync(0xffffffffu, part, step);
        sum += part;
        if (all) break;
    }
    return sum;
}

// ROUNDS packs of 16 bytes a thread; `said` and the counter behind it are zeros.
template <int WARPS, int ROUNDS>
__global__ void __launch_bounds__(32 * WARPS)
    scan(const int* x, int* out, long long* said, long long* taken,
         long long n, int exclusive) {
    constexpr int A_WARP = 32 * WIDTH * ROUNDS, A_TILE = A_WARP * WARPS;
    __shared__ int totals[WARPS], before, own;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (threadIdx.x == 0)
        own =
            gridDim.x > 1
                ? static_cast<int>(atomicAdd(
                      reinterpret_cast<unsigned long long*>(taken), 1ull))
                : 0;
    __syncthreads();
    const int tile = own;
    const long long first = static_cast<long long>(tile) * A_TILE +
                            warp * A_WARP + lane * WIDTH;
    const bool whole = static_cast<long long>(tile + 1) * A_TILE <= n;
    Four packs[ROUNDS];
#pragma unroll
    for (int r = 0; r < ROUNDS; ++r) {
        const long long at = first + r * 32 * WIDTH;
        if (whole) {
            packs[r] = *reinterpret_cast<const Four*>(x + at);
        } else {
            for (int i = 0; i < WIDTH; ++i)
                packs[r].of[i] = at + i < n ? x[at + i] : 0;
        }
    }
    // Within the warp; `running` is what its rounds before add.
    int running = 0;
#pragma unroll
    for (int r = 0; r < ROUNDS; ++r) {
        int sum = 0;
        for (int i = 0; i < WIDTH; ++i) {
            const int value = packs[r].of[i];
            packs[r].of[i] = exclusive ? sum : sum + value;
            sum += value;
        }
        const int up_to = scan_lanes(sum, lane);
        const int add = running + up_to - sum;
        for (int i = 0; i < WIDTH; ++i) packs[r].of[i] += add;
        running += __shfl_sync(0xffffffffu, up_to, 31);
    }
    if (lane == 0) totals[warp] = running;
    __syncthreads();
    if (warp == 0) {
        const int mine = lane < WARPS ? totals[lane] : 0;
        const int up_to = scan_lanes(mine, lane);
        const int all = __shfl_sync(0xffffffffu, up_to, 31);
        int sum = 0;
        if (gridDim.x > 1) {
            if (lane == 0) say(said + tile, tile ? ITS_OWN : ALL, all);
            sum = look_back(said, tile, lane);
            if (lane == 0 && tile) say(said + tile, ALL, sum + all);
        }
        if (lane < WARPS) totals[lane] = up_to - mine;
        if (lane == 0) before = sum;
    }
    __syncthreads();
    const int add = before + totals[warp];
#pragma unroll
    for (int r = 0; r < ROUNDS; ++r) {
        const long long at = first + r * 32 * WIDTH;
        for (int i = 0; i < WIDTH; ++i) packs[r].of[i] += add;
        if (whole) {
            *reinterpret_cast<Four*>(out + at) = packs[r];
        } else {
            for (int i = 0; i < WIDTH && at + i < n; ++i)
                out[at + i] = packs[r].of[i];
        }
    }
}
