// Squares every element: one thread an element, and a guard.

// [exercise:moe]
__global__ void moe(const float* x, float* out, int n) {
    // [hole]
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[i] = x[i] * x[i];
    }
    // [/hole]
}
// [/exercise]
