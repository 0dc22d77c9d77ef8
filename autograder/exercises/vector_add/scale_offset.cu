// The chunk of each thread is rounded down, so the last n % threads elements
// belong to nobody: right for every size that the threads divide, wrong for
// the rest. A grid-stride loop gives every element an owner.

// [exercise:scale_offset]
__global__ void scale_offset(const float* x, float scale, float offset,
                             float* out, int n) {
    // [hole]
    // [broken]
    // int threads = gridDim.x * blockDim.x;
    // int thread = blockIdx.x * blockDim.x + threadIdx.x;
    // int chunk = n / threads;
    // int first = thread * chunk;
    // for (int i = first; i < first + chunk; ++i) {
    //     out[i] = scale * x[i] + offset;
    // }
    // [/broken]
    int threads = gridDim.x * blockDim.x;
    int thread = blockIdx.x * blockDim.x + threadIdx.x;
    for (int i = thread; i < n; i += threads) {
        out[i] = scale * x[i] + offset;
    }
    // [/hole]
}
// [/exercise]
