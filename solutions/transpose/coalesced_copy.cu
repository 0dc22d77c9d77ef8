// Copies with four elements a thread. A block owns 1,024 neighbours; its
// threads take neighbours of each other, then all move on by a block's width.

// [exercise:copy_coalesced]
__global__ void copy_coalesced(const float* x, float* out, int n) {
    int block = blockIdx.x * 4 * blockDim.x;  // the block's first element
    for (int k = 0; k < 4; ++k) {
        // [hole]
        int i = block + k * blockDim.x + threadIdx.x;
        if (i < n) {
            out[i] = x[i];
        }
        // [/hole]
    }
}
// [/exercise]
