// expect: sectors
__global__ void aos_to_soa(const float* aos, float* soa, int n) {
    // The broken kernel itself, said in other words.
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    const float* particle = aos + 8 * i;
    for (int field = 0; field < 8; ++field) {
        soa[field * n + i] = particle[field];
    }
}
