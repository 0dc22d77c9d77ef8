// Adds four floats a thread with one 128-bit load from each input. The wide
// load needs addresses that are multiples of 16 bytes, and a tail for n % 4.

// [exercise:vector_add_vec4]
__global__ void vector_add_vec4(const float* x, const float* y, float* out,
                                int n) {
    // [hole]
    int thread = blockIdx.x * blockDim.x + threadIdx.x;
    int whole = n / 4;
    if (thread < whole) {
        float4 p = reinterpret_cast<const float4*>(x)[thread];
        float4 q = reinterpret_cast<const float4*>(y)[thread];
        reinterpret_cast<float4*>(out)[thread] =
            make_float4(p.x + q.x, p.y + q.y, p.z + q.z, p.w + q.w);
    }
    // One thread an element, not a loop: the compiler would unroll the loop
    // 16 times for the three elements that it can ever see.
    int last = 4 * whole + thread;
    if (last < n) {
        out[last] = x[last] + y[last];
    }
    // [/hole]
}
// [/exercise]
