// expect: Only every fourth element is written
__global__ void vector_add_vec4(const float* x, const float* y, float* out,
                                int n) {
    int thread = blockIdx.x * blockDim.x + threadIdx.x;
    int whole = n / 4;
    if (thread < whole) {
        float4 p = reinterpret_cast<const float4*>(x)[thread];
        float4 q = reinterpret_cast<const float4*>(y)[thread];
        out[4 * thread] = p.x + q.x;
    }
    int last = 4 * whole + thread;
    if (last < n) {
        out[last] = x[last] + y[last];
    }
}
