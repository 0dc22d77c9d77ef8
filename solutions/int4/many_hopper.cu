// out = x weightᵀ for 17 to 256 tokens on Hopper, the weight in four bits (layout.py).
//
// The weight is the left operand of wgmma, from registers; the right operand, x, comes
// from shared memory, in the order of the fragments' columns, into which `arrange`
// brings it beforehand. All that a stage needs, words, scales, zeros and x, is
// contiguous: four warps ask for it by bulk copies several stages ahead (one alone is too
// slow at it), while sixteen widen codes and multiply. Their own loads cannot reach that
// far: a warp has six scoreboards to wait by. Where rows and tokens make too few blocks,
// a cluster of blocks shares the columns, and adds its sums through shared memory, always
// in one order.
#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <kw/int4.cuh>

namespace cg = cooperative_groups;

constexpr int STEP = 64;  // columns, and tokens of a tile of x
constexpr int X_BYTES = STEP * STEP * 2;
constexpr int PAD =
    4;  // steps: arranged columns are whole stages of any size
constexpr int ROWS =
    128;  // of a block: two groups of four warps have 64 each
constexpr int WORD_BYTES = 512;  // of 16 rows in a step: a warp's loads

// Two numbers of 16 bits, of whatever type, and eight.
struct alignas(4) Two {
    unsigned bits;
};
struct alignas(16) Eight {
    Two pairs[4];
};

// Bring x into tiles of 64 tokens and 64 columns: (token tiles, steps, 64, 64), zeros
// behind the last token and column, up to a whole stage. Of a token's 128 bytes, group c of 16 has the pairs
// of columns 16 t + 2 c for t from 0 to 3; it lies at c ^ token % 8, as wgmma's swizzle
// of 128 bytes wants it.
extern "C" __global__ void arrange(const Two* x, Eight* tiles, int tokens,
                                   int columns) {
    const int across = (columns + PAD * STEP - 1) / (PAD * STEP) * PAD;
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

// How a block divides a stage of columns.
template <int TILES>
struct Stage {
    // For few tokens, widening takes as long as multiplying: twice as many warps do it,
    // each of half the steps. For more, a warp's sums need the registers.
    static constexpr int ACROSS = TILES == 1 ? 2 : 1, UNITS = 2;
    static constexpr int STEPS = UNITS * ACROSS, LONG = STEP * STEPS;
    static constexpr int WARPS = 8 * ACROSS;  // that multiply
    static constexpr int THREADS =
        32 * (WARPS + 4);  // and those that copy
};

// TILES: of 64 tokens, of a block. SPLITS: blocks of a cluster. GROUPS: that a stage's
// columns are of.
template <typename T, int TILES, int SPLITS, int STAGES, int GROUPS>
__global__ void __launch_bounds__(Stage<TILES>::THREADS, 1)
    __cluster_dims__(1, 1, SPLITS)
        int4_many_hopper(const uint4* words, const T* scales,
                         const unsigned char* zeros, const Eight* x,
                         const T* bias, T* out, int tokens, int rows,
                         int columns, int pitch, int group_size) {
    using Pair = typename kw::Int4<T>::Pair;
    using Of = Stage<TILES>;
    constexpr int ACROSS = Of::ACROSS, STEPS = Of::STEPS, LONG = Of::LONG,
                  WARPS = Of::WARPS;
    // A stage has x, then words, scales and zeros; swizzled tiles begin at multiples
    // of 1,024 bytes.
    constexpr int WORDS_AT = TILES * STEPS * X_BYTES;
    constexpr int SCALES_AT = WORDS_AT + ROWS / 16 * STEPS * WORD_BYTES;
    constexpr int ZEROS_AT = SCALES_AT + GROUPS * ROWS * 2;
    constexpr int STAGE = (ZEROS_AT + GROUPS * ROWS + 1023) / 1024 * 1024;
    constexpr int PITCH = ROWS + 4;  // of the sums, in floats
    extern __shared__ unsigned char room[];
    __shared__ unsigned long long barriers[2 * STAGES];
    unsigned char* stages = room + (1024 - address_of(room) % 1024) % 1024;
    // Known to be the same in all lanes, so that descriptors stay in uniform registers.
    const int lane = threadIdx.x % 32,
              warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
    const int longs = (columns + LONG - 1) / LONG;
    const int begin = longs * static_cast<int>(blockIdx.z) / SPLITS;
    const int end = longs * static_cast<int>(blockIdx.z + 1) / SPLITS;
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
        // Registers are given in groups of four warps.
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        const int across = (columns + STEP - 1) / STEP;
        const int padded = (across + PAD - 1) / PAD * PAD;
        const int first = TILES * blockIdx.y, one = warp - WARPS;
        const int from_row = ROWS * static_cast<int>(blockIdx.x);
        // Behind the last row and token nothing is copied: what lies there counts for
        // numbers that nobody stores.
        const int down = min(ROWS / 16, (rows - from_row + 15) / 16);
        const int tiles = min(TILES, (tokens + STEP - 1) / STEP - first);
        const int wide = min(ROWS, pitch - from_row);
        const int all_groups = (columns + group_size - 1) / group_size;
        // Of its row tiles' words, each warp copies a quarter, a lane one tile's.
        const int tile = 2 * one + lane;
        const bool copies_words = lane < 2 && tile < down;
        words +=
            static_cast<long long>(from_row / 16 + tile) * across * 32;
        // The first warp copies x too, the second scales and zeros.
        const bool copies_x = one == 0 && lane >= 8 && lane < 8 + tiles;
        x += static_cast<long long>(first + lane - 8) * padded *
             (X_BYTES / 16);
        int stage = 0, phase = 1;
        for (int i = begin; i < end; ++i) {
            const unsigned there = full + 8 * stage;
            const unsigned to = address_of(stages) + stage * STAGE;
            const int steps = min(STEPS, across - STEPS * i);
            const int group = i * LONG / group_size;
            const int groups = min(GROUPS, all_groups - group);
            barrier_wait(empty + 8 * stage, phase);
            if (threadIdx.x == 32 * WARPS)
                barrier_expect(there, tiles * STEPS * X_BYTES +
                                          down * steps * WORD_BYTES +
                                          groups * wide * 3);
            if (copies_words) {
                copy_bulk(to + WORDS_AT + tile * STEPS * WORD_BYTES,
                          words + STEPS * i * 32, steps * WORD_BYTES,
                          there);
            } else if (copies_x) {
                copy_bulk(
                    to + (lane - 8) * STEPS * X_BYTES,
                    x + static_cast<long long>(STEPS * i) * (X_BYTES / 16),
                    STEPS * X_BYTES, there);
            } else if (one == 1 && lane >= 16 && lane < 16 + groups) {
                const int k = lane - 16;
                const long long from =
                    static_cast<long long>(group + k) * pitch + from_row;
                copy_bulk(to + SCALES_AT + k * ROWS * 2, scales + from,
                          2 * wide, there);
                copy_bulk(to + ZEROS_AT + k * ROWS, zeros + from, wide,
                          there);
            }
            if (++stage == STAGES) stage = 0, phase ^= 1;
        }
        return;
    }

    // No more than those gave back: a block has 96 or 168 a thread at first.
    if constexpr (ACROSS == 2)
        asm volatile("setmaxnreg.inc.sync.aligned.u32 112;");
    else
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    const int g = lane / 4, t = lane % 4;
    const int part = warp / 8;        // of a stage's steps
    const int own = 16 * (warp % 8);  // first row
    float sum[TILES][32] = {};
    unsigned a[Of::UNITS][4][4];
    // Zeros are written before the first product, as far as ptxas is concerned: else it
    // waits for every single one.
#pragma unroll
    for (int j = 0; j < TILES; ++j) {
#pragma unroll
        for (int i = 0; i < 32; ++i) asm volatile("" : "+f"(sum[j][i]));
    }
    int stage = 0, phase = 0, before = 0;
    for (int i = begin; i < end; ++i) {
        const unsigned char* here = stages + stage * STAGE;
        const T* of_scales = reinterpret_cast<const T*>(here + SCALES_AT);
        const unsigned tiles = address_of(stages) + stage * STAGE;
        barrier_wait(full + 8 * stage, phase);
#pragma unroll
        for (int u = 0; u < Of::UNITS; ++u) {
            const int s = u * ACROSS + part;
            const uint4 found = *reinterpret_cast<const uint4*>(
                here + WORDS_AT + (own / 16 * STEPS + s) * WORD_BYTES +
                16 * lane);
            // A lane's sixteen columns of a step are of one group.
            const int group =
                min(GROUPS <= STEPS ? s * GROUPS / STEPS
                                    : (STEP * s + 16 * t) * GROUPS / LONG,
                    (columns - 1 - i * LONG) * GROUPS / LONG);
            Pair zero[2], scale[2];
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const int at = group * ROWS + own + g + 8 * h;
                zero[h] = kw::Int4<T>::zero(here[ZEROS_AT + at]);
                scale[h] =
                    kw::Int4<T>::twice(static_cast<float>(of_scales[at]));
            }
            kw::widen<T>(found.x, zero, scale, a[u][0]);
            kw::widen<T>(found.y, zero, scale, a[u][1]);
            kw::widen<T>(found.z, zero, scale, a[u][2]);
            kw::widen<T>(found.w, zero, scale, a[u][3]);
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
            for (int f = 0; f < 4; ++f) {
#pragma unroll
                for (int j = 0; j < TILES; ++j)
                    wgmma<T>(
                        sum[j], a[u][f],
                        descriptor_of(tiles + (STEPS * j + s) * X_BYTES) +
                            2 * f);
            }
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            // The products before are done: their fragments may be written anew.
            asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
            if (u == 0 && lane == 0 && i != begin)
                barrier_arrive(empty + 8 * before);
        }
        before = stage;
        if (++stage == STAGES) stage = 0, phase ^= 1;
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");

    // All stages are used up: their room holds the sums, a token's side by side.
    constexpr int TOKENS = STEP * TILES;
    float* sums = reinterpret_cast<float*>(stages);
    asm volatile("bar.sync 1, %0;" ::"n"(32 * WARPS) : "memory");
#pragma unroll
    for (int j = 0; j < TILES; ++j) {
#pragma unroll
        for (int i = 0; i < 32; ++i) {
            const int token = STEP * j + i / 4 * 8 + 2 * t + i % 2;
            sums[(TOKENS * part + token) * PITCH + own + i / 2 % 2 * 8 +
                 g] = sum[j][i];
        }
    }
    cg::cluster_group cluster = cg::this_cluster();
    cluster.sync();
    const float* of_block[SPLITS];
#pragma unroll
    for (int z = 0; z < SPLITS; ++z)
        of_block[z] = cluster.map_shared_rank(sums, z);
    // Every block ends a share of the tokens, a thread one row's.
    constexpr int AT_ONCE = 32 * WARPS / ROWS;
    const int r = threadIdx.x % ROWS, row = blockIdx.x * ROWS + r;
    const int from = TOKENS / SPLITS * blockIdx.z + threadIdx.x / ROWS;
    const float more =
        bias && row < rows ? static_cast<float>(bias[row]) : 0.0f;
#pragma unroll
    for (int k = 0; k < TOKENS / SPLITS; k += AT_ONCE) {
        const int token = from + k, place = TOKENS * blockIdx.y + token;
        float total = more;
#pragma unroll
        for (int z = 0; z < SPLITS; ++z) {
#pragma unroll
            for (int p = 0; p < ACROSS; ++p)
                total += of_block[z][(TOKENS * p + token) * PITCH + r];
        }
        if (row < rows && place < tokens)
            out[static_cast<long long>(place) * rows + row] =
                static_cast<T>(total);
    }
    cluster.sync();  // no block ends while another reads of it
}
