// C = A B in fp16 with fp32 accumulation, a 16 x 16 tile of C a warp, through wmma.
// A (m x k) and B (k x n) row-major; m, n, k multiples of 16.
#include <mma.h>
using namespace nvcuda;

// Launch: grid = (n / 16, m / 64), block = 128; the four warps stack their tiles.
__global__ void gemm_wmma(const half* a, const half* b, float* c, int m, int n, int k) {
    int row = (blockIdx.y * 4 + threadIdx.x / 32) * 16;
    int col = blockIdx.x * 16;
    if (row >= m) return;

    wmma::fragment<wmma::accumulator, 16, 16, 16, float> total;
    wmma::fill_fragment(total, 0.0f);
    for (int at = 0; at < k; at += 16) {
        wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a_part;
        wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> b_part;
        wmma::load_matrix_sync(a_part, a + row * k + at, k);
        wmma::load_matrix_sync(b_part, b + at * n + col, n);
        wmma::mma_sync(total, a_part, b_part, total);
    }
    wmma::store_matrix_sync(c + row * n + col, total, n, wmma::mem_row_major);
}
