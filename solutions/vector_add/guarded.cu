// Adds two arrays of any length: blocks come whole, so the last one may hold
// threads that have no element, and the guard sends those home.

// [exercise:vector_add]
__global__ void vector_add(const float* x, const float* y, float* out,
                           int n) {
    // [hole]
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[i] = x[i] + y[i];
    }
    // [/hole]
}
// [/exercise]
