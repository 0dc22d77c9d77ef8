// Where each expert's rows end: a histogram in shared memory, and its prefix sum in
// log2(256) steps. One block: there are at most 256 experts.

// [exercise:expert_offsets]
__global__ void expert_offsets(const int* chosen, int* offsets, int pairs,
                               int experts) {
    // [hole]
    __shared__ int sums[256];
    int t = threadIdx.x;
    sums[t] = 0;
    __syncthreads();
    for (int pair = t; pair < pairs; pair += blockDim.x) {
        atomicAdd(&sums[chosen[pair]], 1);
    }
    __syncthreads();
    // Before the step sums[t] holds `step` counts, and afterwards twice
    // as many: those up to t.
    for (int step = 1; step < experts; step *= 2) {
        int before = t >= step ? sums[t - step] : 0;
        __syncthreads();
        sums[t] += before;
        __syncthreads();
    }
    if (t < experts) offsets[t] = sums[t];
    // [/hole]
}
// [/exercise]
