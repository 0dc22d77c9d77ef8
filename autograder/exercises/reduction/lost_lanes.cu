// A sum a block, eight warps of shuffles. The guard of chapter 1, "threads
// past the end go home", sends lanes away that the shuffles still ask.

// [exercise:lost_lanes]
__global__ void lost_lanes(const float* x, float* out, int n) {
    __shared__ float totals[8];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    // [hole]
    // [broken]
    // if (i >= n) {
    //     return;  // no element, nothing to do
    // }
    // float total = x[i];
    // [/broken]
    float total = i < n ? x[i] : 0.0f;  // nothing to add, and still there
    // [/hole]
    for (int offset = 16; offset > 0; offset /= 2) {
        total += __shfl_down_sync(0xffffffff, total, offset);
    }
    if (threadIdx.x % 32 == 0) {
        totals[threadIdx.x / 32] = total;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int warp = 1; warp < 8; ++warp) {
            total += totals[warp];
        }
        out[blockIdx.x] = total;
    }
}
// [/exercise]
