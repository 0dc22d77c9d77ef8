// expect: wavefronts
__global__ void aos_to_soa(const float* aos, float* soa, int n) {
    __shared__ float tile[256][8];
    int first = blockIdx.x * 256;
    for (int k = 0; k < 8; ++k) {
        int j = k * 256 + threadIdx.x;
        if (first + j / 8 < n) {
            tile[j / 8][j % 8] = aos[8 * first + j];
        }
    }
    __syncthreads();
    int i = first + threadIdx.x;
    for (int field = 0; field < 8; ++field) {
        if (i < n) {
            soa[field * n + i] = tile[threadIdx.x][field];
        }
    }
}
