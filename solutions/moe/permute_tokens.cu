// Each token's numbers go to the rows of its experts, in the order of tokens: a block to
// an expert, which asks 32 pairs at a time which of them are its own.

// [exercise:permute_tokens]
__global__ void permute_tokens(const float4* x, const int* chosen,
                               const int* offsets, int* rows, float4* out,
                               int pairs, int k, int packs) {
    int expert = blockIdx.x, lane = threadIdx.x % 32;
    // [hole]
    int row = expert > 0 ? offsets[expert - 1] : 0;  // the next free one
    for (int first = 0; first < pairs; first += 32) {
        int pair = first + lane;
        bool own = pair < pairs && chosen[pair] == expert;
        unsigned all = __ballot_sync(0xffffffff, own);
        if (own && threadIdx.x < 32) {
            unsigned before = all & ((1u << lane) - 1);
            rows[pair] = row + __popc(before);
        }
        // One bit after another, from the lowest: a pair, and its row.
        for (; all != 0; all &= all - 1) {
            int token = (first + __ffs(all) - 1) / k;
            for (int c = threadIdx.x; c < packs; c += blockDim.x) {
                out[row * packs + c] = x[token * packs + c];
            }
            ++row;
        }
    }
    // [/hole]
}
// [/exercise]
