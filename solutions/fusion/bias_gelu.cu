// GELU of x + bias, a bias a column. A thread has four columns, keeps their biases in
// registers and walks down rows: the bias is read once a block, not once a row.

// [exercise:bias_gelu]
__device__ float gelu_tanh(float v) {
    // [hole]
    float u = 0.79788456f * (v + 0.044715f * v * v * v);
    return 0.5f * v * (1.0f + tanhf(u));
    // [/hole]
}

__global__ void bias_gelu(const float* x, const float* bias, float* out,
                          int rows, int columns) {
    // [hole]
    int pack = blockIdx.x * blockDim.x + threadIdx.x;
    int packs = columns / 4;
    if (pack >= packs) return;
    float4 b = reinterpret_cast<const float4*>(bias)[pack];
    for (int row = blockIdx.y; row < rows; row += gridDim.y) {
        long long at = (long long)row * packs + pack;
        float4 v = reinterpret_cast<const float4*>(x)[at];
        reinterpret_cast<float4*>(out)[at] =
            make_float4(gelu_tanh(v.x + b.x), gelu_tanh(v.y + b.y),
                        gelu_tanh(v.z + b.z), gelu_tanh(v.w + b.w));
    }
    // [/hole]
}
// [/exercise]
