// Scales and adds with any number of threads: each takes every stride-th
// element, so a warp still reads 32 neighbours at a time.
//
// __restrict__ promises that out overlaps neither input. Only then may the
// compiler start the loads of the next rounds before this round's store.

// [exercise:saxpy_grid_stride]
__global__ void saxpy(float a, const float* __restrict__ x,
                      const float* __restrict__ y, float* __restrict__ out,
                      int n) {
    // [hole]
    int stride = gridDim.x * blockDim.x;
    int first = blockIdx.x * blockDim.x + threadIdx.x;
    for (int i = first; i < n; i += stride) {
        out[i] = a * x[i] + y[i];
    }
    // [/hole]
}
// [/exercise]
