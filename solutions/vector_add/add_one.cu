// Adds one to every element: one thread for one element, and exactly as many
// threads as elements, so that no thread has to ask whether it is needed.

// [exercise:add_one]
__global__ void add_one(const float* x, float* out) {
    // [hole]
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = x[i] + 1.0f;
    // [/hole]
}
// [/exercise]
