// expect: a `sum` in which nothing was put
#include <mma.h>
using namespace nvcuda;

// Launch: grid (n / 16, m / 16), block 32. m, n, k: multiples of 16.
__global__ void wmma_tile(const half* a, const half* b, float* c, int m,
                          int n, int k) {
    int row = blockIdx.y * 16, column = blockIdx.x * 16;
    using wmma::row_major, wmma::matrix_a, wmma::matrix_b;
    wmma::fragment<matrix_a, 16, 16, 16, half, row_major> left;
    wmma::fragment<matrix_b, 16, 16, 16, half, row_major> right;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    for (int i = 0; i < k; i += 16) {
        wmma::load_matrix_sync(left, a + row * k + i, k);
        wmma::load_matrix_sync(right, b + i * n + column, n);
        wmma::mma_sync(sum, left, right, sum);
    }
    float* corner = c + row * n + column;
    wmma::store_matrix_sync(corner, sum, n, wmma::mem_row_major);
}
