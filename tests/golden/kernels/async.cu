// Asynchronous copies into shared memory whose rows lie close, padded, or swizzled: a
// 16-byte copy goes past the first-level cache, and fetches by where its bytes will lie.
#include <kw/cp_async.cuh>

constexpr int ROWS = 32;

// A tile of ROWS rows of 8 pieces of `Bytes`, `stride` pieces apart, through shared memory.
template <int Bytes, int Stride, bool Swizzled>
__device__ void through(const char* x, char* out) {
    __shared__ __align__(128) char tile[ROWS * Stride * Bytes];
    for (int i = threadIdx.x; i < ROWS * 8; i += blockDim.x) {
        int row = i / 8, piece = i % 8;
        int place = Swizzled ? piece ^ row % 8 : piece;
        kw::cp_async<Bytes>(&tile[(row * Stride + place) * Bytes],
                            &x[i * Bytes]);
    }
    kw::cp_async_commit();
    kw::cp_async_wait<0>();
    __syncthreads();
    for (int i = threadIdx.x; i < ROWS * 8 * Bytes / 4; i += blockDim.x) {
        int at = i * 4, row = at / (8 * Bytes), piece = at / Bytes % 8;
        int place = Swizzled ? piece ^ row % 8 : piece;
        *reinterpret_cast<int*>(out + at) = *reinterpret_cast<int*>(
            &tile[(row * Stride + place) * Bytes + at % Bytes]);
    }
}

__global__ void async_close(const char* x, char* out) {
    through<16, 8, false>(x, out);
}
__global__ void async_padded_16(const char* x, char* out) {
    through<16, 9, false>(x, out);
}
__global__ void async_padded_32(const char* x, char* out) {
    through<16, 10, false>(x, out);
}
__global__ void async_swizzled(const char* x, char* out) {
    through<16, 8, true>(x, out);
}
__global__ void async_padded_8(const char* x, char* out) {
    through<8, 9, false>(x, out);
}
__global__ void async_padded_4(const char* x, char* out) {
    through<4, 9, false>(x, out);
}

// Past the end come zeros, and nothing is fetched for them.
__global__ void async_zeros(const float4* x, float4* out, int n) {
    __shared__ float4 tile[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    kw::cp_async<16>(&tile[threadIdx.x], &x[i < n ? i : 0], i < n);
    kw::cp_async_wait_all();
    out[i] = tile[threadIdx.x];
}
