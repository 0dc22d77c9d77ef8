// Threads read what others have just written, and nobody waits: a race.
// For compute-sanitizer --tool racecheck.

#include <cstdio>

__global__ void reversed(const float* x, float* out) {
    __shared__ float tile[256];
    tile[threadIdx.x] = x[threadIdx.x];
    out[threadIdx.x] = tile[255 - threadIdx.x];
}

int main() {
    float *x, *out;
    cudaMalloc(&x, 256 * sizeof(float));
    cudaMalloc(&out, 256 * sizeof(float));
    cudaMemset(x, 0, 256 * sizeof(float));
    reversed<<<1, 256>>>(x, out);
    printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
    return 0;
}
