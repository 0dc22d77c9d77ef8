// out = x weightᵀ for 17 to 256 tokens on Hopper, the weight in four bits (layout.py).
//
// The weight is the left operand of wgmma, from registers; the right operand, x, comes
// from shared memory, in the order of the fragments' columns, into which `arrange`
// brings it beforehand. All that a stage of 128 columns needs, words, scales, zeros and
// x, is contiguous: one warp asks for it by bulk copies several stages ahead, while
// eight warps widen codes and multiply. Their own loads cannot reach that far: a warp
// has six scoreboards to wait by. A block has 256 rows, so that x, which every block
// reads from L2, is read half as often as the words. Where rows and tokens make too few
// blocks, a cluster of blocks shares the columns, and adds its sums through shared
// memory, always in one order.
#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <kw/int4.cuh>

namespace cg = cooperative_groups;

constexpr int STEP = 64;  // columns, and tokens of a tile of x
constexpr int X_BYTES = STEP * STEP * 2;
constexpr int STEPS = 2, LONG = STEP * STEPS;  // of a stage
constexpr int WARPS = 8, DOWN = 2;         // that multiply; tiles of each
constexpr int ROWS = 16 * WARPS * DOWN;    // of a block
constexpr int THREADS = 32 * (WARPS + 4);  // and those that copy
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
    const int across = (columns + LONG - 1) / LONG * STEPS;
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

// TILES: of 64 tokens, of a block. SPLITS: blocks of a cluster. GROUPS: that a stage's
// columns are of.
template <typename T, int TILES, int SPLITS, int STAGES, int GROUPS>
__global__ void __launch_bounds__(THREADS, 1)
    __cluster_dims__(1, 1, SPLITS)
        int4_many_hopper(const uint4* words, const T* scales,
                         const unsigned char* zeros, const Eight* x,
                         const T* bias, T* out, int tokens, int rows,
                         int columns, int pitch, int group_size) {
    using Pair = typename kw::Int4<T>::Pair;
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
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
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
        // Registers are given in groups of four warps; one of these copies.
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (warp > WARPS) return;
        const int across = (columns + STEP - 1) / STEP;
        const int tiles_down = (rows + 15) / 16;
        const int top = blockIdx.x * (ROWS / 16),
                  first = TILES * blockIdx.y;
        // Behind the last row and token nothing is copied: what lies there counts for
        // numbers that nobody stores.
        const int down = min(ROWS / 16, tiles_down - top);
        const int tiles = min(TILES, (tokens + STEP - 1) / STEP - first);
        const int wide =
            min(ROWS, pitch - ROWS * static_cast<int>(blockIdx.x));
        const int all_groups = (columns + group_size - 1) / group_size;
        int stage = 0, phase = 1;
        for (int i = begin; i < end; ++i) {
            const unsigned there = full + 8 * stage;
            const unsigned to = address_of(stages) + stage * STAGE;
            const int steps = min(STEPS, across - STEPS * i);
            const int group = i * LONG / group_size;
            const int groups = min(GROUPS, all_groups - group);
            barrier_wait(empty + 8 * stage, phase);
            if (lane == 0)
                barrier_expect(there, tiles * STEPS * X_BYTES +
                                          down * steps * WORD_BYTES +
                                          groups * wide * 3);
            __syncwarp();
            if (lane < down) {
                const long long tile =
                    static_cast<long long>(top + lane) * across;
                copy_bulk(to + WORDS_AT + lane * STEPS * WORD_BYTES,
                          words + (tile + STEPS * i) * 32,
                          steps * WORD_BYTES, there);
            } else if (lane >= 16 && lane < 16 + tiles) {
                const long long tile =
                    static_cast<long long>(first + lane - 16) * longs + i;
                copy_bulk(to + (lane - 16) * STEPS * X_BYTES,
                          x + tile * (STEPS * X_BYTES / 16),
                          STEPS * X_BYTES, there);
            } else if (lane >= 24 && lane < 24 + groups) {
                const int k = lane - 24;
                const long long from =
                    static_cast<long long>(group + k) * pitch +
                    ROWS * static_cast<int>(blockIdx.x);
                copy_bulk(to + SCALES_AT + k * ROWS * 2, scales + from,
                          2 * wide, there);
                copy_bulk(to + ZEROS_AT + k * ROWS, zeros + from, wide,
                          there);
            }
            if (++stage == STAGES) stage = 0, phase ^= 1;
        }
        return;
    }

    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    const int g = lane / 4, t = lane % 4;
    // Of 64 rows that four warps multiply at once, a warp has 16.
    auto row_of = [&](int r) {
        return 64 * (DOWN * (warp / 4) + r) + 16 * (warp % 4);
    };
    float sum[DOWN][TILES][32] = {};
    unsigned a[2][4][4];
    int stage = 0, phase = 0, before = 0;
    // Zeros are written before the first product, as far as ptxas is concerned: else it
    // waits for every single one.
#pragma unroll
    for (int r = 0; r < DOWN; ++r)
#pragma unroll
        for (int j = 0; j < TILES; ++j)
#pragma unroll
            for (int i = 0; i < 32; ++i)
                asm volatile("" : "+f"(sum[r][j][i]));
    for (int i = begin; i < end; ++i) {
        const unsigned char* here = stages + stage * STAGE;
        const T* of_scales = reinterpret_cast<const T*>(here + SCALES_AT);
        const unsigned tiles = address_of(here);
        barrier_wait(full + 8 * stage, phase);
        uint4 found[STEPS * DOWN];
#pragma unroll
        for (int u = 0; u < STEPS * DOWN; ++u)
            found[u] = *reinterpret_cast<const uint4*>(
                here + WORDS_AT +
                row_of(u % DOWN) / 16 * STEPS * WORD_BYTES +
                u / DOWN * WORD_BYTES + 16 * lane);
        Pair zero[DOWN][2], scale[DOWN][2];
#pragma unroll
        for (int u = 0; u < STEPS * DOWN; ++u) {
            const int s = u / DOWN, r = u % DOWN;
            // A lane's sixteen columns of a step are of one group.
            if (s == 0 || GROUPS > 1) {
                const int group =
                    min((STEP * s + 16 * t) * GROUPS / LONG,
                        (columns - 1 - i * LONG) * GROUPS / LONG);
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    const int at = group * ROWS + row_of(r) + g + 8 * h;
                    zero[r][h] = kw::Int4<T>::zero(here[ZEROS_AT + at]);
                    scale[r][h] = kw::Int4<T>::twice(
                        static_cast<float>(of_scales[at]));
                }
            }
            auto& mine = a[u % 2];
            kw::widen<T>(found[u].x, zero[r], scale[r], mine[0]);
            kw::widen<T>(found[u].y, zero[r], scale[r], mine[1]);
            kw::widen<T>(found[u].z, zero[r], scale[r], mine[2]);
            kw::widen<T>(found[u].w, zero[r], scale[r], mine[3]);
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
            for (int f = 0; f < 4; ++f) {
#pragma unroll
                for (int j = 0; j < TILES; ++j)
                    wgmma<T>(
                        sum[r][j], mine[f],
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
    float* sums = reinterpret_cast<float*>(stages);
    asm volatile("bar.sync 1, %0;" ::"n"(32 * WARPS) : "memory");
#pragma unroll
    for (int r = 0; r < DOWN; ++r) {
#pragma unroll
        for (int j = 0; j < TILES; ++j) {
#pragma unroll
            for (int i = 0; i < 32; ++i) {
                const int token = STEP * j + i / 4 * 8 + 2 * t + i % 2;
                sums[token * PITCH + row_of(r) + i / 2 % 2 * 8 + g] =
                    sum[r][j][i];
            }
        }
    }
    cg::cluster_group cluster = cg::this_cluster();
    cluster.sync();
    const float* of_block[SPLITS];
#pragma unroll
    for (int z = 0; z < SPLITS; ++z)
        of_block[z] = cluster.map_shared_rank(sums, z);
    // Every block ends a share of the tokens, a thread one row of it.
    static_assert(ROWS == 32 * WARPS);
    constexpr int TOKENS = STEP * TILES / SPLITS;
    const int row = blockIdx.x * ROWS + threadIdx.x;
    const int from = TOKENS * blockIdx.z;
    const int place = STEP * TILES * blockIdx.y + from;
    const float more =
        bias && row < rows ? static_cast<float>(bias[row]) : 0.0f;
#pragma unroll 4
    for (int k = 0; k < TOKENS; ++k) {
        float total = more;
#pragma unroll
        for (int z = 0; z < SPLITS; ++z)
            total += of_block[z][(from + k) * PITCH + threadIdx.x];
        if (row < rows && place + k < tokens)
            out[static_cast<long long>(place + k) * rows + row] =
                static_cast<T>(total);
    }
    cluster.sync();  // no block ends while another reads of it
}
