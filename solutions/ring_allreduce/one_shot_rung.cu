// Rung 5: ranks that reach each other's memory. Each message goes whole to every rank,
// which adds all of them in one order, so that all get the same bits. Here a rank is one
// block; peers.cu has as many as it takes, and messages of any length.

// [exercise:one_shot_all_reduce]
// boxes[r] is rank r's memory for messages, (ranks, n): row s is for rank
// s to fill. signs[r][s] says which call row s is from; so far, an older.
__global__ void one_shot_all_reduce(const float* x, float* out,
                                    float* const* boxes, int* const* signs,
                                    int n, int rank, int ranks, int call) {
    // [hole]
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        float own = x[i];
        for (int peer = 0; peer < ranks; ++peer) {
            boxes[peer][rank * n + i] = own;
        }
    }
    // All that the block has written is there before any sign is.
    __threadfence_system();
    __syncthreads();
    int peer = threadIdx.x;
    if (peer < ranks) {
        atomicExch_system(&signs[peer][rank], call);
        while (atomicAdd_system(&signs[rank][peer], 0) < call) {
        }
    }
    // And no number is read before its sign was seen.
    __threadfence_system();
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        float sum = boxes[rank][i];
        for (int r = 1; r < ranks; ++r) sum += boxes[rank][r * n + i];
        out[i] = sum;
    }
    // [/hole]
}
// [/exercise]
