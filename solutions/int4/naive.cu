// Squares every element: one thread an element, and a guard.

// [exercise:int4]
__global__ void int4(const float* x, float* out, int n) {
    // [hole]
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[i] = x[i] * x[i];
    }
    // [/hole]
}
// [/exercise]
