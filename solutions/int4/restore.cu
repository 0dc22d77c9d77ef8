// The matrix that packed codes stand for: (codes - zeros) * scales (see layout.py).
#include <cuda_bf16.h>
#include <cuda_fp16.h>

constexpr int ROWS = 16, COLUMNS = 64;

template <typename T>
struct alignas(16) Sixteen {
    T of[16];
};

// T: of the matrix; S: of the scales; W: what is computed in, float or double.
template <typename T, typename S, typename W>
__global__ void restore(const uint4* words, const S* scales,
                        const unsigned char* zeros, T* out, int rows,
                        int columns, int pitch, int group_size) {
    const int across = (columns + COLUMNS - 1) / COLUMNS;
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int step = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (step >= across) return;
    const uint4 four =
        words[(static_cast<long long>(blockIdx.y) * across + step) * 32 +
              lane];
    const unsigned word[4] = {four.x, four.y, four.z, four.w};
    const int first = step * COLUMNS + 16 * t, last = columns - 1;
    const bool one_group = group_size % 16 == 0, whole = columns % 16 == 0;
    for (int half = 0; half < 2; ++half) {
        const int row = blockIdx.y * ROWS + g + 8 * half;
        if (row >= rows || first > last) return;
        Sixteen<T> made;
        W scale, zero;
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            if (i == 0 || !one_group) {
                const long long group = min(first + i, last) / group_size;
                scale = static_cast<W>(scales[group * pitch + row]);
                zero = static_cast<W>(zeros[group * pitch + row]);
            }
            // Columns 0 and 1 of four are nibbles 0 and 4, columns 2 and 3 are 2 and 6.
            const int nibble = i % 4 / 2 * 2 + i % 2 * 4 + half;
            const W code = static_cast<W>(word[i / 4] >> 4 * nibble & 15);
            made.of[i] = static_cast<T>((code - zero) * scale);
        }
        T* to = out + static_cast<long long>(row) * columns + first;
        if (whole) {
            *reinterpret_cast<Sixteen<T>*>(to) = made;
            continue;
        }
        for (int i = 0; i < 16 && first + i <= last; ++i)
            to[i] = made.of[i];
    }
}
