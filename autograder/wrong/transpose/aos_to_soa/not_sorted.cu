// expect: copied, not sorted
__global__ void aos_to_soa(const float* aos, float* soa, int n) {
    int first = blockIdx.x * 256 * 8;
    for (int k = 0; k < 8; ++k) {
        int j = first + k * 256 + threadIdx.x;
        if (j < 8 * n) {
            soa[j] = aos[j];
        }
    }
}
