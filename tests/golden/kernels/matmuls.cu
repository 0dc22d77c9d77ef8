// Matrix products: naive, and with registers holding a 4 x 4 patch of C a thread.

__global__ void matmul_naive(const float* a, const float* b, float* c,
                             int n) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    float sum = 0.0f;
    for (int k = 0; k < n; ++k) sum += a[row * n + k] * b[k * n + column];
    c[row * n + column] = sum;
}

constexpr int TILE = 64, STEP = 16, PATCH = 4;

__global__ void matmul_register_blocked(const float* a, const float* b,
                                        float* c, int n) {
    __shared__ float left[TILE][STEP], right[STEP][TILE];
    int thread = threadIdx.y * blockDim.x + threadIdx.x;
    float sum[PATCH][PATCH] = {};
    for (int k = 0; k < n; k += STEP) {
        for (int i = thread; i < TILE * STEP; i += 256) {
            left[i / STEP][i % STEP] =
                a[(blockIdx.y * TILE + i / STEP) * n + k + i % STEP];
            right[i / TILE][i % TILE] =
                b[(k + i / TILE) * n + blockIdx.x * TILE + i % TILE];
        }
        __syncthreads();
        for (int kk = 0; kk < STEP; ++kk) {
            for (int i = 0; i < PATCH; ++i) {
                for (int j = 0; j < PATCH; ++j) {
                    sum[i][j] += left[threadIdx.y + 16 * i][kk] *
                                 right[kk][threadIdx.x + 16 * j];
                }
            }
        }
        __syncthreads();
    }
    for (int i = 0; i < PATCH; ++i) {
        for (int j = 0; j < PATCH; ++j) {
            c[(blockIdx.y * TILE + threadIdx.y + 16 * i) * n +
              blockIdx.x * TILE + threadIdx.x + 16 * j] = sum[i][j];
        }
    }
}
