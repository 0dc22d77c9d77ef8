// expect: the registers keep what the tile before brought
__global__ void __launch_bounds__(256, 2)
    matmul_fast(const float* a, const float* b, float* c, int m, int n,
                int k) {
    // Rows four floats longer put the turned stores into 32 banks.
    __shared__ alignas(16) float a_tile[2][8][128 + 4];
    __shared__ alignas(16) float b_tile[2][8][128];
    int top = blockIdx.y * 128, left = blockIdx.x * 128;
    // What this thread brings of a tile: four floats of a row of a, and of b.
    int a_row = threadIdx.x / 2, a_i = threadIdx.x % 2 * 4;
    int b_i = threadIdx.x / 32, b_column = threadIdx.x % 32 * 4;
    const float* a_from = a + (long long)(top + a_row) * k + a_i;
    const float* b_from = b + (long long)b_i * n + left + b_column;
    bool a_inside = top + a_row < m, b_inside = left + b_column < n;
    float4 a_next, b_next;
    auto load = [&](int first) {
        if (first == 0)
            a_next = b_next = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (a_inside && first + a_i < k) {
            a_next = *reinterpret_cast<const float4*>(a_from + first);
        }
        if (b_inside && first + b_i < k) {
            b_next = *reinterpret_cast<const float4*>(b_from);
        }
        b_from += 8 * (long long)n;
    };
    auto store = [&](int into) {
        a_tile[into][a_i][a_row] = a_next.x;
        a_tile[into][a_i + 1][a_row] = a_next.y;
        a_tile[into][a_i + 2][a_row] = a_next.z;
        a_tile[into][a_i + 3][a_row] = a_next.w;
        *reinterpret_cast<float4*>(&b_tile[into][b_i][b_column]) = b_next;
    };
    // A warp has 64 x 32 elements, its lanes stand 8 x 4, each with four groups
    // of 4 x 4: side by side the lanes of a row or column read 128 or 64 bytes.
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int row = warp / 4 * 64 + (lane / 2 % 2 + lane / 8 * 2) * 4;
    int column = warp % 4 * 32 + (lane % 2 + lane / 4 % 2 * 2) * 4;
    float sums[8][8] = {};
    int now = 0;
    load(0);
    store(0);
    for (int first = 8; first < k + 8; first += 8) {
        load(first);  // zeros behind the last tile, which nobody reads
        // This pair is whole, and nobody reads the other any more.
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            float down[8], across[8];
            for (int g = 0; g < 2; ++g) {
                *reinterpret_cast<float4*>(&down[4 * g]) =
                    *reinterpret_cast<float4*>(
                        &a_tile[now][i][row + 32 * g]);
                *reinterpret_cast<float4*>(&across[4 * g]) =
                    *reinterpret_cast<float4*>(
                        &b_tile[now][i][column + 16 * g]);
            }
            for (int r = 0; r < 8; ++r) {
                for (int s = 0; s < 8; ++s)
                    sums[r][s] += down[r] * across[s];
            }
        }
        now = 1 - now;
        store(now);
    }
    for (int r = 0; r < 8; ++r) {
        int to = top + row + r / 4 * 32 + r % 4;
        for (int g = 0; g < 2; ++g) {
            int at = left + column + 16 * g;
            if (to < m && at < n) {
                *reinterpret_cast<float4*>(c + (long long)to * n + at) =
                    *reinterpret_cast<float4*>(&sums[r][4 * g]);
            }
        }
    }
}
