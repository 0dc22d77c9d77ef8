// The package's kernel: C = A B for fp16 and bf16 with fp32 accumulation, any shape,
// A and B by rows or by columns, batches, 64-bit addresses.
//
// What a block keeps of A and B lies in shared memory just as it lies in memory, so a
// matrix that is stored the other way round is no other tile: ldmatrix turns it on the
// way into registers, or does not. Groups of 8 elements, 16 bytes, are the unit
// throughout; inside of a row of the tile they are permuted by a swizzle, so that the
// eight rows of an ldmatrix lie in eight different groups of banks.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <kw/cp_async.cuh>
#include <kw/ldmatrix.cuh>
#include <kw/mma.cuh>
#include <kw/shared.cuh>

struct Matrix {
    long long pitch;  // elements from one row, as stored, to the next
    long long batch;  // elements from one matrix to the next
};

struct Shape {
    int m, n, k;
    int row_tiles, column_tiles;  // blocks that cover one C
    int group;  // row tiles that run together, for the L2 cache
    Matrix a, b, c;
};

constexpr int GROUP = 8;  // elements in 16 bytes

// A tile of ROWS x COLUMNS elements, as stored; where element (row, column) lies.
template <int ROWS, int COLUMNS>
struct Tile {
    static constexpr int rows = ROWS, columns = COLUMNS,
                         size = ROWS * COLUMNS;
    static constexpr int groups = COLUMNS / GROUP;
    // Rows of 128 bytes or more begin at the same bank; of shorter ones, every second
    // or fourth does.
    static constexpr int shift = groups >= 8 ? 0 : groups == 4 ? 1 : 2;
    static constexpr int mask = groups >= 8 ? 7 : groups - 1;
    static_assert(groups >= 2 && (groups & (groups - 1)) == 0,
                  "a power of two");

    static __device__ int at(int row, int column) {
        return row * COLUMNS +
               ((column / GROUP) ^ (row >> shift & mask)) * GROUP;
    }
};

// What one thread copies of each tile: the groups THREADS apart from its first one.
template <typename T, typename Place, int THREADS, bool WHOLE>
struct Copier {
    static constexpr int rows_at_once = THREADS / Place::groups;
    static constexpr int count = Place::rows / rows_at_once;
    static_assert(rows_at_once * Place::groups == THREADS,
                  "whole rows at once");
    static_assert(count * rows_at_once == Place::rows, "whole rounds");
    static_assert(rows_at_once % 8 == 0,
                  "the swizzle comes round in eight rows");

    const T* from;     // the thread's first group in this tile
    const T* cursor;   // the one that is copied next
    long long stride;  // elements from one of its groups to the next
    long long step;    // elements from this tile to the next
    int to;            // where its first group goes in the tile, in bytes
    int row, column;
    int rows,
        columns;  // of the matrix that remain, from this tile's corner on
    bool along;   // tiles follow each other along a row, or down a column

    __device__ Copier(const T* corner, long long pitch, int rows,
                      int columns, bool along)
        : stride(rows_at_once * pitch),
          step(along ? Place::columns : Place::rows * pitch),
          row(threadIdx.x / Place::groups),
          column(threadIdx.x % Place::groups * GROUP),
          rows(rows),
          columns(columns),
          along(along) {
        from = cursor = corner + row * pitch + column;
        to = Place::at(row, column) * static_cast<int>(sizeof(T));
    }

    // Copies the part-th of `parts` shares; parts come in order.
    __device__ void copy(kw::Shared tile, int part, int parts) {
        const int first = count * part / parts,
                  last = count * (part + 1) / parts;
        // Bytes 0 to 16 of each group are inside; no byte of another is touched.
        const int valid = min(max(columns - column, 0), GROUP) *
                          static_cast<int>(sizeof(T));
        const kw::Shared own = tile + to;
        constexpr int apart = rows_at_once * Place::columns * sizeof(T);
#pragma unroll
        for (int i = first; i < last; ++i, cursor += stride) {
            if constexpr (WHOLE) {
                kw::cp_async<16>(own + i * apart, cursor);
            } else {
                const bool inside = row + i * rows_at_once < rows;
                kw::cp_async_first<16>(own + i * apart, cursor,
                                       inside ? valid : 0);
            }
        }
    }

    __device__ void next() {
        from += step;
        cursor = from;
        if constexpr (!WHOLE) {
            if (along)
                columns -= Place::columns;
            else
                rows -= Place::rows;
        }
    }
};

__device__ void store(float* to, float low, float high, bool both) {
    if (both) {
        *reinterpret_cast<float2*>(to) = make_float2(low, high);
    } else {
        to[0] = low;
    }
}
__device__ void store(__half* to, float low, float high, bool both) {
    if (both) {
        *reinterpret_cast<__half2*>(to) = __floats2half2_rn(low, high);
    } else {
        to[0] = __float2half(low);
    }
}
__device__ void store(__nv_bfloat16* to, float low, float high,
                      bool both) {
    if (both) {
        *reinterpret_cast<__nv_bfloat162*>(to) =
            __floats2bfloat162_rn(low, high);
    } else {
        to[0] = __float2bfloat16(low);
    }
}

// Launch: row_tiles * column_tiles * batches blocks of 32 * (BM / WM) * (BN / WN)
// threads, with STAGES * (BM + BN) * BK * 2 bytes of dynamic shared memory.
//   BM x BN x BK   what a block does at a time
//   WM x WN        what each of its warps keeps of C, in registers
//   A_ROWS         A is stored by rows (m, k), else as (k, m); B_ROWS: (k, n), else (n, k)
//   WHOLE          m, n, k are multiples of BM, BN, BK
template <typename T, typename Out, int BM, int BN, int BK, int WM, int WN,
          int STAGES, bool A_ROWS, bool B_ROWS, bool WHOLE>
__global__ void __launch_bounds__(32 * (BM / WM) * (BN / WN),
                                  WM* WN > 1024 ? 1 : 4)
    gemm_tiles(const T* __restrict__ a, const T* __restrict__ b,
               Out* __restrict__ c, Shape shape) {
    constexpr int THREADS = 32 * (BM / WM) * (BN / WN);
    constexpr int ROWS16 = WM / 16, COLUMNS8 = WN / 8, STEPS = BK / 16;
    static_assert(STEPS >= 2 && COLUMNS8 % 2 == 0,
                  "a step ahead, B in pairs");
    using TileA = Tile<A_ROWS ? BM : BK, A_ROWS ? BK : BM>;
    using TileB = Tile<B_ROWS ? BK : BN, B_ROWS ? BN : BK>;
    constexpr int BYTES = sizeof(T), RIGHT = TileA::size * BYTES;
    constexpr int STAGE = RIGHT + TileB::size * BYTES;

    extern __shared__ __align__(128) unsigned char memory[];
    const kw::Shared stages = kw::shared_address(memory);

    // Which tile of which C: `group` row tiles down, then one column on.
    const int each = shape.row_tiles * shape.column_tiles;
    const long long matrix = blockIdx.x / each;
    const int tile = blockIdx.x % each;
    const int band = tile / (shape.group * shape.column_tiles);
    const int high =
        min(shape.row_tiles - band * shape.group, shape.group);
    const int inside = tile - band * shape.group * shape.column_tiles;
    const int row0 = (band * shape.group + inside % high) * BM;
    const int column0 = inside / high * BN;

    a += matrix * shape.a.batch + (A_ROWS ? row0 * shape.a.pitch : row0);
    b += matrix * shape.b.batch +
         (B_ROWS ? column0 : column0 * shape.b.pitch);
    c += matrix * shape.c.batch;
    const int rows_left = shape.m - row0, columns_left = shape.n - column0;
    Copier<T, TileA, THREADS, WHOLE> from_a(
        a, shape.a.pitch, A_ROWS ? rows_left : shape.k,
        A_ROWS ? shape.k : rows_left, A_ROWS);
    Copier<T, TileB, THREADS, WHOLE> from_b(
        b, shape.b.pitch, B_ROWS ? shape.k : columns_left,
        B_ROWS ? columns_left : shape.k, !B_ROWS);

    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int warp_m = warp / (BN / WN) * WM,
              warp_n = warp % (BN / WN) * WN;
    float sum[ROWS16][COLUMNS8][4] = {};
    unsigned left[2][ROWS16][4], right[2][COLUMNS8 / 2][4];

    // Matrix i of an ldmatrix is named by lanes 8 i … 8 i + 7. In the order that
    // mma_sync wants: A by rows, or by columns and turned; likewise B. Sixteen rows of a
    // tile further on the swizzle is the same, so one way an offset is a constant.
    const int upper = lane % 16, right8 = lane / 16 * 8;
    const int turned = lane % 8 + lane / 16 * 8, below8 = lane / 8 % 2 * 8;
    constexpr int DOWN_A = 16 * TileA::columns * BYTES;
    constexpr int DOWN_B = 16 * TileB::columns * BYTES;
    int at_a[A_ROWS ? STEPS : ROWS16], at_b[B_ROWS ? COLUMNS8 / 2 : STEPS];
#pragma unroll
    for (int i = 0; i < (A_ROWS ? STEPS : ROWS16); ++i)
        at_a[i] =
            BYTES * (A_ROWS ? TileA::at(warp_m + upper, 16 * i + right8)
                            : TileA::at(turned, warp_m + 16 * i + below8));
#pragma unroll
    for (int i = 0; i < (B_ROWS ? COLUMNS8 / 2 : STEPS); ++i)
        at_b[i] =
            RIGHT +
            BYTES * (B_ROWS ? TileB::at(upper, warp_n + 16 * i + right8)
                            : TileB::at(warp_n + turned, 16 * i + below8));
    auto load = [&](int into, kw::Shared stage, int step) {
#pragma unroll
        for (int i = 0; i < ROWS16; ++i) {
            if constexpr (A_ROWS)
                kw::ldmatrix(left[into][i],
                             stage + at_a[step] + DOWN_A * i);
            else
                kw::ldmatrix_trans(left[into][i],
                                   stage + at_a[i] + DOWN_A * step);
        }
#pragma unroll
        for (int j = 0; j < COLUMNS8 / 2; ++j) {
            if constexpr (B_ROWS)
                kw::ldmatrix_trans(right[into][j],
                                   stage + at_b[j] + DOWN_B * step);
            else
                kw::ldmatrix(right[into][j],
                             stage + at_b[step] + DOWN_B * j);
        }
    };

    const int tiles = (shape.k + BK - 1) / BK;
#pragma unroll
    for (int s = 0; s < STAGES - 1; ++s) {
        if (s < tiles) {
            from_a.copy(stages + s * STAGE, 0, 1);
            from_b.copy(stages + s * STAGE + RIGHT, 0, 1);
            from_a.next();
            from_b.next();
        }
        kw::cp_async_commit();
    }
    kw::cp_async_wait<STAGES - 2>();
    __syncthreads();
    if (tiles > 0) load(0, stages, 0);

    int reading = 0, writing = (STAGES - 1) * STAGE;  // in bytes
    for (int t = 0; t < tiles; ++t) {
        const bool more = t + STAGES - 1 < tiles;
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            if (step == STEPS - 1) {
                // Tile t + 1 has arrived, and nobody reads stage `reading` any more:
                // its last fragments are in registers.
                kw::cp_async_wait<STAGES - 2>();
                __syncthreads();
                reading =
                    reading == (STAGES - 1) * STAGE ? 0 : reading + STAGE;
            }
            if (step < STEPS - 1 || t + 1 < tiles)
                load((step + 1) % 2, stages + reading, (step + 1) % STEPS);
            if (step < STEPS - 1) {
                if (more) {
                    from_a.copy(stages + writing, step, STEPS - 1);
                    from_b.copy(stages + writing + RIGHT, step, STEPS - 1);
                }
                if (step == STEPS - 2) {
                    // An empty group near the end: the wait counts groups.
                    kw::cp_async_commit();
                    from_a.next();
                    from_b.next();
                    writing = writing == (STAGES - 1) * STAGE
                                  ? 0
                                  : writing + STAGE;
                }
            }
#pragma unroll
            for (int i = 0; i < ROWS16; ++i)
#pragma unroll
                for (int j = 0; j < COLUMNS8; ++j) {
                    const unsigned(&pair)[4] = right[step % 2][j / 2];
                    const unsigned own[2] = {pair[j % 2 * 2],
                                             pair[j % 2 * 2 + 1]};
                    kw::mma_sync<T>(sum[i][j], left[step % 2][i], own,
                                    sum[i][j]);
                }
        }
    }

    // Lane 4 g + t holds columns 2t and 2t + 1 of rows g and g + 8.
    const int row = row0 + warp_m + lane / 4;
    const int column = column0 + warp_n + lane % 4 * 2;
    const bool even = WHOLE || shape.c.pitch % 2 == 0;
#pragma unroll
    for (int i = 0; i < ROWS16; ++i)
#pragma unroll
        for (int j = 0; j < COLUMNS8; ++j)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const int r = row + 16 * i + 8 * h, s = column + 8 * j;
                const float low = sum[i][j][2 * h],
                            high = sum[i][j][2 * h + 1];
                Out* to = c + r * shape.c.pitch + s;
                if (WHOLE || (r < shape.m && s < shape.n)) {
                    const bool two = WHOLE || s + 1 < shape.n;
                    store(to, low, high, two && even);
                    if (two && !even) store(to + 1, high, 0.0f, false);
                }
            }
}
