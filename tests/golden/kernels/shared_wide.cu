// Accesses of 8 and 16 bytes to shared memory where the caller says: one warp a block, one
// pattern a block. A negative index switches its lane off.
#include <cuda_fp16.h>
#include <kw/ldmatrix.cuh>

template <class T>
__device__ void load_at(const T* x, const int* index, T* out) {
    __shared__ T tile[512];
    for (int i = threadIdx.x; i < 512; i += 32) tile[i] = x[i];
    __syncwarp();
    int from = index[blockIdx.x * 32 + threadIdx.x];
    if (from >= 0) out[blockIdx.x * 32 + threadIdx.x] = tile[from];
}

template <class T>
__device__ void store_at(const T* x, const int* index, T* out) {
    __shared__ T tile[512];
    for (int i = threadIdx.x; i < 512; i += 32) tile[i] = x[i];
    __syncwarp();
    int to = index[blockIdx.x * 32 + threadIdx.x];
    T value = x[threadIdx.x];
    if (to >= 0) tile[to] = value;
    __syncwarp();
    out[blockIdx.x * 32 + threadIdx.x] = tile[threadIdx.x];
}

__global__ void load_float2(const float2* x, const int* index,
                            float2* out) {
    load_at(x, index, out);
}
__global__ void load_float4(const float4* x, const int* index,
                            float4* out) {
    load_at(x, index, out);
}
__global__ void store_float2(const float2* x, const int* index,
                             float2* out) {
    store_at(x, index, out);
}
__global__ void store_float4(const float4* x, const int* index,
                             float4* out) {
    store_at(x, index, out);
}

// Rows of 16 bytes that the lanes name, four 8 x 8 matrices at once.
__global__ void ldmatrix_at(const float4* x, const int* index,
                            float4* out) {
    __shared__ float4 tile[512];
    for (int i = threadIdx.x; i < 512; i += 32) tile[i] = x[i];
    __syncwarp();
    unsigned row[4];
    kw::ldmatrix(row, &tile[index[blockIdx.x * 32 + threadIdx.x]]);
    out[blockIdx.x * 32 + threadIdx.x] =
        make_float4(__uint_as_float(row[0]), __uint_as_float(row[1]),
                    __uint_as_float(row[2]), __uint_as_float(row[3]));
}
