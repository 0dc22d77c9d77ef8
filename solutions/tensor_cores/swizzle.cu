// Where the halves of a tile lie, so that ldmatrix meets no bank twice: the place that
// kw::swizzled gives from the next rung on.

// [exercise:swizzle]
#include <kw/ldmatrix.cuh>
#include <kw/tiles.cuh>

// Which element of a tile, `width` halves wide, holds (row, column).
__device__ int place(int row, int column, int width) {
    int group = column / 8;  // of eight halves, 16 bytes
    // [hole]
    group ^= row % 8;
    // [/hole]
    return row * width + group * 8 + column % 8;
}

// Copies 64 x 64 halves through shared memory, as a product would read them.
// Launch: a block of 128 threads for each such tile.
__global__ void copy_fragments(const half* x, half* out) {
    __shared__ __align__(128) half tile[64 * 64];
    int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16;
    kw::copy_tile<64, 64>(tile, x + blockIdx.x * 64 * 64, 64, place);
    __syncthreads();
    half2* to = reinterpret_cast<half2*>(out + blockIdx.x * 64 * 64);
    for (int j = 0; j < 64; j += 16) {
        half2 held[4];
        unsigned(&part)[4] = reinterpret_cast<unsigned(&)[4]>(held);
        int at = place(row + lane % 16, j + lane / 16 * 8, 64);
        kw::ldmatrix(part, tile + at);
        for (int i = 0; i < 4; ++i) {
            int down = row + i % 2 * 8 + lane / 4;
            to[down * 32 + j / 2 + i / 2 * 4 + lane % 4] = held[i];
        }
    }
}
// [/exercise]
