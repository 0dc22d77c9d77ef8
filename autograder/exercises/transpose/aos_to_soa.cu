// One thread a particle reads fields that are 32 bytes apart from lane to lane,
// so each request touches 32 sectors and uses an eighth of them. Read floats in
// the order in which they lie, and sort them in shared memory.

// [exercise:aos_to_soa]
__global__ void aos_to_soa(const float* aos, float* soa, int n) {
    // [hole]
    // [broken]
    // int i = blockIdx.x * blockDim.x + threadIdx.x;
    // if (i < n) {
    //     for (int field = 0; field < 8; ++field) {
    //         soa[field * n + i] = aos[8 * i + field];
    //     }
    // }
    // [/broken]
    // Four lanes hold the same field: rows 4 banks apart keep all 32 apart.
    __shared__ float tile[8][256 + 4];
    int first = blockIdx.x * 256;  // the block's first particle
    for (int k = 0; k < 8; ++k) {
        int j = k * 256 + threadIdx.x;  // a float of the block's stretch
        if (first + j / 8 < n) {
            tile[j % 8][j / 8] = aos[8 * first + j];
        }
    }
    __syncthreads();
    int i = first + threadIdx.x;
    for (int field = 0; field < 8; ++field) {
        if (i < n) {
            soa[field * n + i] = tile[field][threadIdx.x];
        }
    }
    // [/hole]
}
// [/exercise]
