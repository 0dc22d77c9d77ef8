// expect: holds no HMMA
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
    (void)left, (void)right, (void)sum;
    for (int e = threadIdx.x; e < 256; e += 32) {
        float total = 0.0f;
        for (int i = 0; i < k; ++i)
            total += __half2float(a[(row + e / 16) * k + i]) *
                     __half2float(b[i * n + column + e % 16]);
        c[(row + e / 16) * n + column + e % 16] = total;
    }
}
