// Rows of a matrix on their way through a block. All of its threads bring consecutive rows
// into shared memory, 16 bytes at a time; rows from `length` on become zeros, and nothing
// is read there.
//
//   __shared__ float4 tile[16][16];             // rows of 64 floats
//   kw::bring_rows<16, 64>(tile, matrix, start, length);       // by 64 threads
//   __shared__ half tile[64][64 + 8];           // rows of 64 halves, padded by 8
//   kw::bring_rows<64, 128>(tile, matrix, start, length, 64);  // by 128 threads
//
// A thread may keep a row of its own in registers, float query[64], and take the rows of
// the tile to it four floats at a time:
//
//   kw::load_row(query, matrix, row, factor, there)  // times factor; zeros if not there
//   kw::store_row(matrix, row, sum, factor)
//   kw::dot(query, tile[j])        // the sum of query[d] * tile[j][d] over all d
//   kw::add_row(sum, p, tile[j])   // sum[d] += p * tile[j][d] for each d
//   kw::add_tile(sum, weight, mend, score, base, tile)  // the online softmax's step:
//       what was summed times mend; then all rows with weights exp(score[j] - base)
//
// ROWS, THREADS: rows of the tile, threads that take part. Rows of the matrix lie side by
// side and have `width` elements of the tile's type, by default as many as the tile's.
#pragma once

namespace kw {

template <int ROWS, int THREADS, class T, int PITCH, class From>
__device__ __forceinline__ void bring_rows(T (*tile)[PITCH], const From* matrix,
                                           int start, int length,
                                           const int width = PITCH) {
    constexpr int each = 16 / sizeof(T);  // elements of the tile in 16 bytes
    const int groups = width / each;
    const uint4* from = reinterpret_cast<const uint4*>(matrix) + start * groups;
#pragma unroll
    for (int i = threadIdx.x; i < ROWS * groups; i += THREADS) {
        int row = i / groups, column = i % groups * each;
        uint4 sixteen = {0, 0, 0, 0};
        if (start + row < length) sixteen = from[i];
        *reinterpret_cast<uint4*>(&tile[row][column]) = sixteen;
    }
}

template <int D>
__device__ __forceinline__ void load_row(float (&own)[D], const float* matrix, int row,
                                         float factor, bool there) {
    for (int d = 0; d < D; ++d) own[d] = there ? matrix[row * D + d] * factor : 0.0f;
}

template <int D>
__device__ __forceinline__ void store_row(float* matrix, int row, const float (&own)[D],
                                          float factor) {
    for (int d = 0; d < D; ++d) matrix[row * D + d] = own[d] * factor;
}

template <int D>
__device__ __forceinline__ float dot(const float (&own)[D],
                                     const float4 (&row)[D / 4]) {
    float4 s = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int d = 0; d < D; d += 4) {
        float4 four = row[d / 4];
        s.x += own[d] * four.x;
        s.y += own[d + 1] * four.y;
        s.z += own[d + 2] * four.z;
        s.w += own[d + 3] * four.w;
    }
    return (s.x + s.y) + (s.z + s.w);
}

template <int D>
__device__ __forceinline__ void add_row(float (&sum)[D], float factor,
                                        const float4 (&row)[D / 4]) {
    for (int d = 0; d < D; d += 4) {
        float4 four = row[d / 4];
        sum[d] += factor * four.x;
        sum[d + 1] += factor * four.y;
        sum[d + 2] += factor * four.z;
        sum[d + 3] += factor * four.w;
    }
}

template <int D, int ROWS>
__device__ __forceinline__ void add_tile(float (&sum)[D], float& weight, float factor,
                                         const float (&score)[ROWS], float base,
                                         const float4 (&tile)[ROWS][D / 4]) {
    weight *= factor;
    for (int d = 0; d < D; ++d) sum[d] *= factor;
#pragma unroll
    for (int j = 0; j < ROWS; ++j) {
        float p = __expf(score[j] - base);
        weight += p;
        add_row(sum, p, tile[j]);
    }
}

}  // namespace kw
