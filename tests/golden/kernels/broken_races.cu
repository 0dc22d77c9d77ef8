// Kernels whose threads get in each other's way: the values may come out right.

constexpr int T = 16;

template <bool kFirst, bool kSecond>
__device__ void tiled(const float* a, const float* b, float* c, int n) {
    __shared__ float left[T][T], right[T][T];
    int column = blockIdx.x * T + threadIdx.x;
    int row = blockIdx.y * T + threadIdx.y;
    float sum = 0.0f;
    for (int k = 0; k < n; k += T) {
        left[threadIdx.y][threadIdx.x] = a[row * n + k + threadIdx.x];
        right[threadIdx.y][threadIdx.x] =
            b[(k + threadIdx.y) * n + column];
        if (kFirst) __syncthreads();
        for (int i = 0; i < T; ++i) {
            sum += left[threadIdx.y][i] * right[i][threadIdx.x];
        }
        if (kSecond) __syncthreads();
    }
    c[row * n + column] = sum;
}

__global__ void matmul_without_first_barrier(const float* a,
                                             const float* b, float* c,
                                             int n) {
    tiled<false, true>(a, b, c, n);
}

__global__ void matmul_without_second_barrier(const float* a,
                                              const float* b, float* c,
                                              int n) {
    tiled<true, false>(a, b, c, n);
}

__global__ void sum_without_barrier(const float* x, float* out) {
    __shared__ float part[256];
    part[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    for (int stride = 128; stride > 0; stride /= 2) {
        if (threadIdx.x < stride)
            part[threadIdx.x] += part[threadIdx.x + stride];
    }
    if (threadIdx.x == 0) out[0] = part[0];
}

__global__ void histogram_without_atomics(const unsigned char* data,
                                          unsigned int* bins, int n) {
    __shared__ unsigned int local[256];
    local[threadIdx.x] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) local[data[i]] += 1;
    __syncthreads();
    atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
}

__global__ void reversed_without_barrier(const float* x, float* out) {
    __shared__ float tile[256];
    tile[threadIdx.x] = x[threadIdx.x];
    out[threadIdx.x] = tile[255 - threadIdx.x];
}

__global__ void global_race(float* out) {
    if (threadIdx.x % 32 == 0)
        out[0] = blockIdx.x * blockDim.x + threadIdx.x;
}
