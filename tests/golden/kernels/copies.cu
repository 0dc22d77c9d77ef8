// Copies by stride, offset and width: how many 32-byte sectors a request touches.

__global__ void copy(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i];
}

__global__ void copy_stride_2(const float* x, float* out) {
    int i = 2 * (blockIdx.x * blockDim.x + threadIdx.x);
    out[i] = x[i];
}

__global__ void copy_stride_8(const float* x, float* out) {
    int i = 8 * (blockIdx.x * blockDim.x + threadIdx.x);
    out[i] = x[i];
}

__global__ void copy_offset_1(const float* x, float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = x[i + 1];
}

__global__ void copy_char(const char* x, char* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = x[i];
}

__global__ void copy_short(const short* x, short* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = x[i];
}

__global__ void copy_double(const double* x, double* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = x[i];
}

__global__ void copy_float2(const float2* x, float2* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = x[i];
}

__global__ void copy_float4(const float4* x, float4* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = x[i];
}

__global__ void copy_reversed(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = x[n - 1 - i];
}

__global__ void broadcast(const float* x, float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = x[blockIdx.x];
}

__global__ void gather(const float* x, const int* index, float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = x[index[i]];
}

__global__ void scatter(const float* x, const int* index, float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[index[i]] = x[i];
}

struct Particle {
    float x, y, z;
};

__global__ void array_of_structs(const Particle* particles, float* norm) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    Particle p = particles[i];
    norm[i] = p.x * p.x + p.y * p.y + p.z * p.z;
}

__global__ void struct_of_arrays(const float* x, const float* y,
                                 const float* z, float* norm) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    norm[i] = x[i] * x[i] + y[i] * y[i] + z[i] * z[i];
}

__global__ void grid_stride(const float* x, float* out, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += gridDim.x * blockDim.x) {
        out[i] = 2.0f * x[i];
    }
}

__global__ void stencil(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i > 0 && i < n - 1) out[i] = x[i - 1] + x[i] + x[i + 1];
}
