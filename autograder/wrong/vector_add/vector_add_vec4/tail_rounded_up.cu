// expect: it writes outside of out, past its last element
__global__ void vector_add_vec4(const float* x, const float* y, float* out,
                                int n) {
    int thread = blockIdx.x * blockDim.x + threadIdx.x;
    int whole = n / 4;
    if (thread < (n + 3) / 4) {
        float4 p = reinterpret_cast<const float4*>(x)[thread];
        float4 q = reinterpret_cast<const float4*>(y)[thread];
        reinterpret_cast<float4*>(out)[thread] =
            make_float4(p.x + q.x, p.y + q.y, p.z + q.z, p.w + q.w);
    }
}
