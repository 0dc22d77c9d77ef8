// out = weight x for one token, the weight in four bits: a warp a row, and 32 codes a
// lane and load. The words lie in plain order: word i of a row has columns 8 i to
// 8 i + 7, the first in its lowest bits.

// [exercise:int4_gemv]
#include <cuda_fp16.h>

// A word's eight codes, less 8, times eight neighbours of x; summed.
__device__ float eight_products(unsigned word, uint4 numbers) {
    float sum = 0.0f;
    // [hole]
    unsigned pairs[] = {numbers.x, numbers.y, numbers.z, numbers.w};
    for (unsigned pair : pairs) {
        float2 x = __half22float2(reinterpret_cast<half2&>(pair));
        int first = word & 15, second = word >> 4 & 15;
        sum += (first - 8) * x.x + (second - 8) * x.y;
        word >>= 8;
    }
    // [/hole]
    return sum;
}

// Launch: grid ceil(rows / 8), block 256. columns: a multiple of 128.
__global__ void int4_gemv(const uint4* words, const __half* scales,
                          const __half* x, __half* out, int rows,
                          int columns) {
    // [hole]
    int lane = threadIdx.x % 32;
    int row = blockIdx.x * 8 + threadIdx.x / 32;
    if (row >= rows) return;
    int loads = columns / 32;  // of a row: 32 codes each
    const uint4* numbers = reinterpret_cast<const uint4*>(x);
    float sum = 0.0f;
    for (int i = lane; i < loads; i += 32) {
        uint4 four = words[row * loads + i];
        float part = eight_products(four.x, numbers[4 * i]) +
                     eight_products(four.y, numbers[4 * i + 1]) +
                     eight_products(four.z, numbers[4 * i + 2]) +
                     eight_products(four.w, numbers[4 * i + 3]);
        // Four lanes' columns are a group of 128.
        float scale = __half2float(scales[(row * loads + i) / 4]);
        sum += scale * part;
    }
    for (int step = 16; step > 0; step /= 2) {
        sum += __shfl_down_sync(0xffffffff, sum, step);
    }
    if (lane == 0) out[row] = __float2half(sum);
    // [/hole]
}
// [/exercise]
