// expect: the second takes 2 and 3
#include <kw/ldmatrix.cuh>
#include <kw/mma.cuh>
#include <kw/tiles.cuh>

// Launch: grid (n / 128, m / 128), block 128. k: a multiple of 64.
__global__ void __launch_bounds__(128, 2)
    mma_sync_gemm(const half* a, const half* b, float* c, int m, int n,
                  int k) {
    __shared__ __align__(128) half left[128 * 64], right[64 * 128];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int row = warp / 2 * 64, column = warp % 2 * 64;
    a += blockIdx.y * 128 * k;
    b += blockIdx.x * 128;
    float sum[4][8][4] = {};  // 16 x 8 each, four sums a lane
    for (int i = 0; i < k; i += 64) {
        kw::copy_tile<128, 64>(left, a + i, k, kw::swizzled);
        kw::copy_tile<64, 128>(right, b + i * n, n, kw::swizzled);
        __syncthreads();
#pragma unroll
        for (int j = 0; j < 64; j += 16) {
            unsigned x[4][4], y[4][4];
            for (int r = 0; r < 4; ++r) {
                int down = row + 16 * r + lane % 16;
                int at = kw::swizzled(down, j + lane / 16 * 8, 64);
                kw::ldmatrix(x[r], left + at);
            }
            for (int s = 0; s < 4; ++s) {
                int along = column + 16 * s + lane / 16 * 8;
                int at = kw::swizzled(j + lane % 16, along, 128);
                kw::ldmatrix_trans(y[s], right + at);
            }
            for (int r = 0; r < 4; ++r) {
                for (int s = 0; s < 8; ++s) {
                    unsigned* half_of = y[s / 2];
                    unsigned pair[2] = {half_of[0], half_of[1]};
                    kw::mma_sync<half>(sum[r][s], x[r], pair, sum[r][s]);
                }
            }
        }
        __syncthreads();
    }
    c += blockIdx.y * 128 * n + blockIdx.x * 128;
    kw::store_tile(c, sum, n);
}
