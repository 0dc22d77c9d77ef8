// out = x weightᵀ for 17 to 256 tokens on Hopper, the weight in four bits (layout.py).
//
// The weight is the left operand of wgmma, from registers: a lane's fragments come out
// of one load of 16 bytes, as in few.cu, and no other warp wants them, so that they do
// not go through shared memory. The right operand, x, does, in the order of the
// fragments' columns, into which `arrange` brings it beforehand: a step of 64 columns is
// one copy of contiguous bytes for every 64 tokens, which a warp of its own asks for
// several steps ahead, while eight warps widen codes and multiply. Where rows and tokens
// make too few blocks, a cluster of blocks shares the columns, and adds its sums through
// shared memory, always in one order.
#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <kw/int4.cuh>

namespace cg = cooperative_groups;

constexpr int STEP = 64;  // columns, and tokens of a tile of x
constexpr int X_BYTES = STEP * STEP * 2;
constexpr int WARPS = 8, ROWS = 16 * WARPS;  // that multiply
constexpr int THREADS = 32 * (WARPS + 4);    // and those that copy

// Two numbers of 16 bits, of whatever type, and eight.
struct alignas(4) Two {
    unsigned bits;
};
struct alignas(16) Eight {
    Two pairs[4];
};

// Bring x into tiles of 64 tokens and 64 columns: (token tiles, steps, 64, 64), zeros
// behind the last token and column. Of a token's 128 bytes, group c of 16 has the pairs
// of columns 16 t + 2 c for t from 0 to 3; it lies at c ^ token % 8, as wgmma's swizzle
// of 128 bytes wants it.
extern "C" __global__ void arrange(const Two* x, Eight* tiles, int tokens,
                                   int columns) {
    const int across = (columns + STEP - 1) / STEP;
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int c = i % 8, step = i / 8 % across, token = i / 8 / across;
    if (token >= (tokens + STEP - 1) / STEP * STEP) return;
    Eight found = {};
    if (token < tokens) {
#pragma unroll
        for (int t = 0; t < 4; ++t) {
            const int column = step * STEP + 16 * t + 2 * c;
            if (column < columns)
                found.pairs[t] =
                    x[(static_cast<long long>(token) * columns + column) /
                      2];
        }
    }
    const long long tile =
        static_cast<long long>(token / STEP) * across + step;
    tiles[tile * (X_BYTES / 16) + token % STEP * 8 + (c ^ token % 8)] =
        found;
}

__device__ unsigned address_of(const void* shared) {
    return static_cast<unsigned>(__cvta_generic_to_shared(shared));
}

__device__ void barrier_init(unsigned barrier, int arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier),
                 "r"(arrivals));
}

__device__ void barrier_arrive(unsigned barrier) {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier)
                 : "memory");
}

// The phase ends when so many bytes have come, besides.
__device__ void barrier_expect(unsigned barrier, int bytes) {
    asm volatile(
        "mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier),
        "r"(bytes)
        : "memory");
}

__device__ void barrier_wait(unsigned barrier, int phase) {
    asm volatile(
        "{\n.reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
        "@!done bra again;\n}" ::"r"(barrier),
        "r"(phase)
        : "memory");
}

__device__ void copy_bulk(unsigned to, const void* from, int bytes,
                          unsigned barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::"
        "bytes "
        "[%0], [%1], %2, [%3];" ::"r"(to),
        "l"(from), "r"(bytes), "r"(barrier)
        : "memory");
}

// Sixteen columns of 64 tokens, of rows of 128 swizzled bytes.
__device__ unsigned long long descriptor_of(unsigned tile) {
    return static_cast<unsigned long long>((tile & 0x3ffff) >> 4) |
           1ull << 16 | 64ull << 32 | 1ull << 62;
}

template <typename T>
__device__ void wgmma(float (&d)[32], const unsigned (&a)[4],
                      unsigned long long b) {
#define KW_SUMS                                                          \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, " \
    "%15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, "  \
    "%28, %29, %30, %31}, {%32, %33, %34, %35}, %36, 1, 1, 1, 0;"
#define KW_FOUR(i) \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define KW_OPERANDS                                               \
    KW_FOUR(0), KW_FOUR(4), KW_FOUR(8), KW_FOUR(12), KW_FOUR(16), \
        KW_FOUR(20), KW_FOUR(24),                                 \
        KW_FOUR(28) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)
    if constexpr (kw::Int4<T>::ONES == kw::Int4<__half>::ONES) {
        asm volatile(
            "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " KW_SUMS
            : KW_OPERANDS);
    } else {
        asm volatile(
            "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " KW_SUMS
            : KW_OPERANDS);
    }
}

// What a lane needs of a step.
template <typename T>
struct Held {
    uint4 words;
    T scales[2];  // of rows g and g + 8
    unsigned char zeros[2];
};

// TILES: of 64 tokens, of a block. SPLITS: blocks of a cluster.
template <typename T, int TILES, int SPLITS, int STAGES>
__global__ void __launch_bounds__(THREADS, 1)
    __cluster_dims__(1, 1, SPLITS)
        int4_many_hopper(const uint4* words, const T* scales,
                         const unsigned char* zeros, const Eight* x,
                         const T* bias, T* out, int tokens, int rows,
                         int columns, int pitch, int group_size) {
    using Pair = typename kw::Int4<T>::Pair;
    constexpr int STAGE = TILES * X_BYTES;
    // Steps of which a lane has the words: its registers hold the sums, too.
    constexpr int AHEAD = TILES < 3 ? 8 : 4;
    constexpr int PITCH = ROWS + 4;  // of the sums, in floats
    extern __shared__ unsigned char room[];
    __shared__ unsigned long long barriers[2 * STAGES];
    // Swizzled tiles begin at multiples of 1,024 bytes.
    unsigned char* stages = room + (1024 - address_of(room) % 1024) % 1024;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int across = (columns + STEP - 1) / STEP,
              down = (rows + 15) / 16;
    const int begin = static_cast<long long>(across) * blockIdx.z / SPLITS;
    const int end =
        static_cast<long long>(across) * (blockIdx.z + 1) / SPLITS;
    const unsigned full = address_of(barriers), empty = full + 8 * STAGES;
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            barrier_init(full + 8 * s, 1);
            barrier_init(empty + 8 * s, WARPS);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();

    if (warp >= WARPS) {
        // Registers are given in groups of four warps; a single thread copies.
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        const int first = TILES * blockIdx.y,
                  tiles = min(TILES, (tokens + STEP - 1) / STEP - first);
        const Eight* from =
            x + (static_cast<long long>(first) * across + begin) *
                    (X_BYTES / 16);
        int stage = 0, phase = 1;
        for (int i = begin; threadIdx.x == 32 * WARPS && i < end; ++i) {
            const unsigned there = full + 8 * stage;
            barrier_wait(empty + 8 * stage, phase);
            barrier_expect(there, tiles * X_BYTES);
            for (int j = 0; j < tiles; ++j)
                copy_bulk(address_of(stages) + stage * STAGE + j * X_BYTES,
                          from + static_cast<long long>(j) * across *
                                     (X_BYTES / 16),
                          X_BYTES, there);
            from += X_BYTES / 16;
            if (++stage == STAGES) stage = 0, phase ^= 1;
        }
        return;
    }

    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    const int g = lane / 4, t = lane % 4;
    // Behind the last row its tile is multiplied again, for nobody.
    const int tile =
        min(WARPS * static_cast<int>(blockIdx.x) + warp, down - 1);
    words += (static_cast<long long>(tile) * across + begin) * 32 + lane;
    scales += 16 * tile + g;
    zeros += 16 * tile + g;
    // A lane's sixteen columns are of one group.
    const int last = (columns - 1) / group_size;
    int group = (begin * STEP + 16 * t) / group_size,
        within = begin * STEP + 16 * t - group * group_size;
    auto ask = [&](int step, Held<T>& held) {
        if (step >= end) return;
        held.words = *words;
        words += 32;
        const long long at =
            static_cast<long long>(min(group, last)) * pitch;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            held.scales[i] = scales[at + 8 * i];
            held.zeros[i] = zeros[at + 8 * i];
        }
        for (within += STEP; within >= group_size; within -= group_size)
            ++group;
    };
    float sum[TILES][32] = {};
    int stage = 0, phase = 0, before = 0;
    auto multiply = [&](bool first, const Held<T>& held,
                        unsigned(&a)[4][4]) {
        const Pair zero[2] = {kw::Int4<T>::zero(held.zeros[0]),
                              kw::Int4<T>::zero(held.zeros[1])};
        const Pair scale[2] = {
            kw::Int4<T>::twice(static_cast<float>(held.scales[0])),
            kw::Int4<T>::twice(static_cast<float>(held.scales[1]))};
        kw::widen<T>(held.words.x, zero, scale, a[0]);
        kw::widen<T>(held.words.y, zero, scale, a[1]);
        kw::widen<T>(held.words.z, zero, scale, a[2]);
        kw::widen<T>(held.words.w, zero, scale, a[3]);
        barrier_wait(full + 8 * stage, phase);
        const unsigned long long tiles =
            descriptor_of(address_of(stages) + stage * STAGE);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int f = 0; f < 4; ++f) {
#pragma unroll
            for (int j = 0; j < TILES; ++j)
                wgmma<T>(sum[j], a[f], tiles + j * (X_BYTES / 16) + 2 * f);
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        // The step before is done: its stage may be filled anew.
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
        if (lane == 0 && !first) barrier_arrive(empty + 8 * before);
        before = stage;
        if (++stage == STAGES) stage = 0, phase ^= 1;
    };
    Held<T> held[AHEAD] = {};
#pragma unroll
    for (int d = 0; d < AHEAD; ++d) ask(begin + d, held[d]);
    unsigned a[2][4][4];
    int step = begin;
    for (; step + AHEAD <= end; step += AHEAD) {
#pragma unroll
        for (int d = 0; d < AHEAD; ++d) {
            multiply(step + d == begin, held[d], a[d % 2]);
            ask(step + d + AHEAD, held[d]);
        }
    }
#pragma unroll
    for (int d = 0; d < AHEAD; ++d) {
        if (step + d < end) multiply(step + d == begin, held[d], a[d % 2]);
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");

    // All stages are used up: their room holds the sums, a token's side by side.
    float* sums = reinterpret_cast<float*>(stages);
    asm volatile("bar.sync 1, %0;" ::"n"(32 * WARPS) : "memory");
#pragma unroll
    for (int j = 0; j < TILES; ++j) {
#pragma unroll
        for (int i = 0; i < 32; ++i) {
            const int token = STEP * j + i / 4 * 8 + 2 * t + i % 2;
            sums[token * PITCH + 16 * warp + i / 2 % 2 * 8 + g] =
                sum[j][i];
        }
    }
    cg::cluster_group cluster = cg::this_cluster();
    cluster.sync();
    const float* of_block[SPLITS];
#pragma unroll
    for (int z = 0; z < SPLITS; ++z)
        of_block[z] = cluster.map_shared_rank(sums, z);
    // Every block ends a share of the tokens.
    constexpr int TOKENS = STEP * TILES / SPLITS;
    for (int i = threadIdx.x; i < TOKENS * ROWS; i += 32 * WARPS) {
        const int token = TOKENS * blockIdx.z + i / ROWS, r = i % ROWS;
        const int row = blockIdx.x * ROWS + r,
                  place = STEP * TILES * blockIdx.y + token;
        if (row >= rows || place >= tokens) continue;
        float total = bias ? static_cast<float>(bias[row]) : 0.0f;
#pragma unroll
        for (int z = 0; z < SPLITS; ++z)
            total += of_block[z][token * PITCH + r];
        out[static_cast<long long>(place) * rows + row] =
            static_cast<T>(total);
    }
    cluster.sync();  // no block ends while another reads of it
}
