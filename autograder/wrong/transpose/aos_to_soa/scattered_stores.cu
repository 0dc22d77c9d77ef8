// expect: sectors
__global__ void aos_to_soa(const float* aos, float* soa, int n) {
    // The loads are coalesced, and now the stores are not.
    int first = blockIdx.x * 256 * 8;
    for (int k = 0; k < 8; ++k) {
        int j = first + k * 256 + threadIdx.x;
        if (j < 8 * n) {
            soa[j % 8 * n + j / 8] = aos[j];
        }
    }
}
