// expect: sectors
__global__ void copy_coalesced(const float* x, float* out, int n) {
    int block = blockIdx.x * 4 * blockDim.x;  // the block's first element
    for (int k = 0; k < 4; ++k) {
        // Right for every n, and lanes are 16 bytes apart.
        int i = block + 4 * threadIdx.x + k;
        if (i < n) {
            out[i] = x[i];
        }
    }
}
