// The last rung: 128 x 256 of C a block, so that a byte brought serves more; fragments
// are loaded a step ahead of the products; blocks in an order that suits the L2 cache.

// [exercise:gemm_half]
#include <kw/tiles.cuh>

constexpr int ROWS = 128, COLUMNS = 256, DEPTH = 64, STAGES = 3;
constexpr int LEFT = ROWS * DEPTH, STAGE = LEFT + DEPTH * COLUMNS;
constexpr int STEPS = DEPTH / 16, BAND = 8;
// [hole]

// Blocks that run together: eight row tiles down, then one column tile on.
__device__ int2 corner(int m, int n) {
    int down = m / ROWS, across = n / COLUMNS;
    int band = blockIdx.x / (BAND * across) * BAND;
    int inside = blockIdx.x % (BAND * across);
    int high = min(down - band, BAND);
    return {inside / high * COLUMNS, (band + inside % high) * ROWS};
}

// The fragments of a warp's 64 x 64: 16 of the 64 along k.
struct Fragments {
    unsigned x[4][4], y[4][4];

    __device__ void load(kw::Shared stage, int step) {
        int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        int k = 16 * step;
        int row = warp / 4 * 64 + lane % 16;
        int column = warp % 4 * 64 + lane / 16 * 8;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            int at = kw::swizzled(row + 16 * i, k + lane / 16 * 8, DEPTH);
            kw::ldmatrix(x[i], stage + 2 * at);  // in bytes
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            int at = kw::swizzled(k + lane % 16, column + 16 * j, COLUMNS);
            kw::ldmatrix_trans(y[j], stage + 2 * (LEFT + at));
        }
    }

    __device__ void multiply(float (&sum)[4][8][4]) const {
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int j = 0; j < 8; ++j) {
                int k = j % 2 * 2;
                unsigned pair[2] = {y[j / 2][k], y[j / 2][k + 1]};
                kw::mma_sync<half>(sum[i][j], x[i], pair, sum[i][j]);
            }
    }
};
// [/hole]

// Launch: m / 128 * n / 256 blocks in one line, 256 threads, 147,456 bytes of
// dynamic shared memory. k: a multiple of 64.
__global__ void __launch_bounds__(256)
    gemm_half(const half* a, const half* b, float* c, int m, int n,
              int k) {
    extern __shared__ __align__(128) half memory[];
    // [hole]
    kw::Shared stages = kw::shared_address(memory);  // 32 bits
    int2 at = corner(m, n);
    a += at.y * k;
    b += at.x;
    auto fetch = [&](int t) {
        if (t * DEPTH < k) {
            kw::Shared stage = stages + 2 * (t % STAGES * STAGE);
            kw::copy_tile_async<ROWS, DEPTH, 256>(stage, a + t * DEPTH, k,
                                                  kw::swizzled);
            kw::copy_tile_async<DEPTH, COLUMNS, 256>(
                stage + 2 * LEFT, b + t * DEPTH * n, n, kw::swizzled);
        }
        kw::cp_async_commit();
    };
    for (int t = 0; t < STAGES - 1; ++t) fetch(t);
    kw::cp_async_wait<STAGES - 2>();
    __syncthreads();
    float sum[4][8][4] = {};
    Fragments held[2];
    if (k) held[0].load(stages, 0);
    for (int t = 0; t * DEPTH < k; ++t) {
#pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            bool last = s == STEPS - 1;
            if (last) {
                kw::cp_async_wait<STAGES - 2>();
                __syncthreads();
            }
            kw::Shared stage = stages + 2 * ((t + last) % STAGES * STAGE);
            if (!last || (t + 1) * DEPTH < k)
                held[(s + 1) % 2].load(stage, (s + 1) % STEPS);
            if (s == 0) fetch(t + STAGES - 1);
            held[s % 2].multiply(sum);
        }
    }
    kw::store_tile<4>(c + at.y * n + at.x, sum, n);
    // [/hole]
}
// [/exercise]
