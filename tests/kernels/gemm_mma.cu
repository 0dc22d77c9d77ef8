// C = A B in fp16 with fp32 accumulation, as a fast GEMM moves its data: cp.async fills one
// of two stages while the tensor cores work on the other, ldmatrix feeds mma.sync.
// A (m x k) and B (k x n) row-major; m, n multiples of 64, k of 32.
#include <cuda_fp16.h>
#include <kw/cp_async.cuh>
#include <kw/ldmatrix.cuh>
#include <kw/mma.cuh>

constexpr int TILE_M = 64, TILE_N = 64, TILE_K = 32;
constexpr int PAD = 8;  // eight rows then start in eight different groups of banks

struct Stage {
    half a[TILE_M][TILE_K + PAD];
    half b[TILE_K][TILE_N + PAD];
};

__device__ void fetch(Stage& stage, const half* a, const half* b, int n, int k) {
    // 256 copies of 16 bytes for each tile, two of each a thread.
    for (int i = threadIdx.x; i < TILE_M * TILE_K / 8; i += blockDim.x) {
        int row = i / (TILE_K / 8), col = i % (TILE_K / 8) * 8;
        kw::cp_async<16>(&stage.a[row][col], a + row * k + col);
    }
    for (int i = threadIdx.x; i < TILE_K * TILE_N / 8; i += blockDim.x) {
        int row = i / (TILE_N / 8), col = i % (TILE_N / 8) * 8;
        kw::cp_async<16>(&stage.b[row][col], b + row * n + col);
    }
    kw::cp_async_commit();
}

// Launch: grid = (n / 64, m / 64), block = 128; a warp makes a 32 x 32 quarter of the tile.
__global__ void __launch_bounds__(128)
    gemm_mma(const half* a, const half* b, float* c, int m, int n, int k) {
    __shared__ __align__(16) Stage stages[2];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int warp_m = warp / 2 * 32, warp_n = warp % 2 * 32;
    a += (size_t)blockIdx.y * TILE_M * k;
    b += blockIdx.x * TILE_N;

    float sum[2][4][4] = {};  // [16-row tile][8-column tile][register]
    fetch(stages[0], a, b, n, k);
    for (int step = 0; step < k / TILE_K; ++step) {
        bool more = step + 1 < k / TILE_K;
        if (more)
            fetch(stages[(step + 1) % 2], a + (step + 1) * TILE_K,
                  b + (size_t)(step + 1) * TILE_K * n, n, k);
        if (more)
            kw::cp_async_wait<1>();
        else
            kw::cp_async_wait<0>();
        __syncthreads();
        Stage& stage = stages[step % 2];
        for (int kk = 0; kk < TILE_K; kk += 16) {
            unsigned left[2][4], right[4][2];
            for (int i = 0; i < 2; ++i)
                kw::ldmatrix(left[i],
                             &stage.a[warp_m + 16 * i + lane % 16][kk + lane / 16 * 8]);
            for (int j = 0; j < 4; ++j)
                kw::ldmatrix_trans(right[j], &stage.b[kk + lane % 16][warp_n + 8 * j]);
            for (int i = 0; i < 2; ++i)
                for (int j = 0; j < 4; ++j)
                    kw::mma_sync<__half>(sum[i][j], left[i], right[j], sum[i][j]);
        }
        __syncthreads();
    }
    for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 4; ++j)
            for (int r = 0; r < 4; ++r) {
                int row = blockIdx.y * TILE_M + warp_m + 16 * i + lane / 4 + r / 2 * 8;
                int col = blockIdx.x * TILE_N + warp_n + 8 * j + lane % 4 * 2 + r % 2;
                c[(size_t)row * n + col] = sum[i][j][r];
            }
}
