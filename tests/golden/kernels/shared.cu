// Shared memory by width and stride: how many wavefronts a request takes.

__global__ void shared_stride_2(const float* x, float* out) {
    __shared__ float tile[512];
    tile[threadIdx.x] = x[threadIdx.x];
    tile[threadIdx.x + 256] = x[threadIdx.x + 256];
    __syncthreads();
    out[threadIdx.x] = tile[2 * threadIdx.x];
}

__global__ void shared_double(const double* x, double* out) {
    __shared__ double tile[256];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = tile[255 - threadIdx.x];
}

__global__ void shared_float4(const float4* x, float4* out) {
    __shared__ float4 tile[256];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = tile[255 - threadIdx.x];
}

__global__ void shared_char(const char* x, char* out) {
    __shared__ char tile[256];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = tile[255 - threadIdx.x];
}

__global__ void shared_broadcast(const float* x, float* out) {
    __shared__ float tile[256];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = tile[threadIdx.x / 32];
}

__global__ void shared_permuted(const float* x, const int* index,
                                float* out) {
    __shared__ float tile[256];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = tile[index[threadIdx.x]];
}

__global__ void shared_dynamic(const float* x, float* out) {
    extern __shared__ float row[];
    row[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] =
        row[blockDim.x - 1 - threadIdx.x];
}
