// expect: begin one row apart
#include <kw/tiles.cuh>
#include <kw/wmma.cuh>
using namespace nvcuda;

constexpr int DEPTH = 64, PAD = 8;

// Which element of a tile, `width` halves wide, holds (row, column).
__device__ int place(int row, int column, int width) {
    return row * (width + PAD) + column;
}

// Launch: grid (n / 128, m / 128), block 256. k: a multiple of 64.
__global__ void __launch_bounds__(256, 2)
    wmma_gemm(const half* a, const half* b, float* c, int m, int n,
              int k) {
    __shared__ __align__(16) half left[128 * (DEPTH + PAD)];
    __shared__ __align__(16) half right[DEPTH * (128 + PAD)];
    int warp = threadIdx.x / 32;
    int row = warp / 4 * 64, column = warp % 4 * 32;  // of the warp's part
    kw::Left<half> x[4];  // 16 x 16 each, WMMA's fragments
    kw::Right<half> y[2];
    kw::Sum sum[4][2];
    kw::clear(sum);
    a += blockIdx.y * 128 * k;
    b += blockIdx.x * 128;
    for (int i = 0; i < k; i += DEPTH) {
        kw::copy_tile<128, DEPTH, 256>(left, a + i, k, place);
        kw::copy_tile<DEPTH, 128, 256>(right, b + i * n, n, place);
        __syncthreads();
        for (int j = 0; j < DEPTH; j += 16) {
            for (int r = 0; r < 4; ++r) {
                int at = place(row + r, j, DEPTH);
                wmma::load_matrix_sync(x[r], left + at, DEPTH + PAD);
            }
            for (int s = 0; s < 2; ++s) {
                int at = place(j, column + 16 * s, 128);
                wmma::load_matrix_sync(y[s], right + at, 128 + PAD);
            }
            for (int r = 0; r < 4; ++r)
                for (int s = 0; s < 2; ++s)
                    wmma::mma_sync(sum[r][s], x[r], y[s], sum[r][s]);
        }
        __syncthreads();
    }
    c += (blockIdx.y * 128 + row) * n + blockIdx.x * 128 + column;
    kw::store(c, sum, n);
}
