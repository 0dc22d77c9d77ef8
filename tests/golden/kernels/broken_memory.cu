// Kernels that touch what they may not, or read what nobody wrote.

__global__ void one_past_the_end(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) out[i] = x[i < n ? i : 0];
}

__global__ void missing_guard(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = x[i];
}

__global__ void before_the_start(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i - 1] + x[i];
}

__global__ void far_away(const float* x, float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = x[i + (1LL << 36)];
}

__global__ void shared_past_the_end(float* out, int reach) {
    __shared__ float tile[64];
    for (int i = threadIdx.x; i < reach; i += blockDim.x) tile[i] = i;
    __syncthreads();
    out[threadIdx.x] = tile[threadIdx.x];
}

__global__ void dynamic_past_the_end(float* out) {
    extern __shared__ float tile[];
    tile[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = tile[threadIdx.x + 32];
}

__global__ void misaligned(const float* x, float4* out) {
    out[threadIdx.x] = *reinterpret_cast<const float4*>(x + threadIdx.x);
}

__global__ void reads_its_output(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] += x[i];
}

__global__ void shared_unwritten(const float* x, float* out) {
    __shared__ float tile[64];
    if (threadIdx.x < 32) tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = tile[threadIdx.x];
}

// One array's end is the next one's beginning on a GPU, and no sanitizer minds.
__global__ void into_the_next_array(float* out, int reach) {
    __shared__ float left[64], right[64];
    left[threadIdx.x] = 1.0f;
    right[threadIdx.x] = 2.0f;
    __syncthreads();
    if (threadIdx.x == 0) left[reach] = 3.0f;
    __syncthreads();
    out[threadIdx.x] = left[threadIdx.x] + right[threadIdx.x];
}

__global__ void from_the_array_before(float* out) {
    __shared__ float left[64], right[64];
    left[threadIdx.x] = 1.0f;
    right[threadIdx.x] = 2.0f;
    __syncthreads();
    out[threadIdx.x] = left[threadIdx.x] + right[(int)threadIdx.x - 1];
}
