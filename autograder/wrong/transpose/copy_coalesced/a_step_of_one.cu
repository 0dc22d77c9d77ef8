// expect: moves on by its width, blockDim.x
__global__ void copy_coalesced(const float* x, float* out, int n) {
    int block = blockIdx.x * 4 * blockDim.x;  // the block's first element
    for (int k = 0; k < 4; ++k) {
        int i = block + k + threadIdx.x;
        if (i < n) {
            out[i] = x[i];
        }
    }
}
