// With a capacity, each expert has so many rows and no more. `taken` begins anew with
// every slot, so an expert's first second choice gets the row of its first first choice;
// and `<=` lets one more in, whose row is the next expert's first. No pair is dropped
// that should be kept, and hardly a row is out of range: sums over rows look right.

// [exercise:dropped_tokens]
// A warp to each expert; rows[token * k + j] is where the token's j-th
// choice goes.
__global__ void dropped_tokens(const int* chosen, int* rows, int tokens,
                               int k, int experts, int capacity) {
    int lane = threadIdx.x % 32;
    int expert = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (expert >= experts) return;
    // [hole]
    // [broken]
    // for (int j = 0; j < k; ++j) {
    //     int taken = 0;
    //     for (int first = 0; first < tokens; first += 32) {
    //         int token = first + lane;
    //         bool own = token < tokens && chosen[token * k + j] == expert;
    //         unsigned all = __ballot_sync(0xffffffff, own);
    //         int rank = taken + __popc(all & ((1u << lane) - 1));
    //         if (own) {
    //             int row = expert * capacity + rank;
    //             rows[token * k + j] = rank <= capacity ? row : -1;
    //         }
    //         taken += __popc(all);
    //     }
    // }
    // [/broken]
    int taken = 0;
    for (int j = 0; j < k; ++j) {
        for (int first = 0; first < tokens; first += 32) {
            int token = first + lane;
            bool own = token < tokens && chosen[token * k + j] == expert;
            unsigned all = __ballot_sync(0xffffffff, own);
            int rank = taken + __popc(all & ((1u << lane) - 1));
            if (own) {
                int row = expert * capacity + rank;
                rows[token * k + j] = rank < capacity ? row : -1;
            }
            taken += __popc(all);
        }
    }
    // [/hole]
}
// [/exercise]
