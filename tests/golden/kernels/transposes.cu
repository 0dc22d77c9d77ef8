// Transposes of a square matrix: strided stores, then tiles with bank conflicts,
// padding and a swizzle.

constexpr int TILE = 32;

__global__ void transpose_naive(const float* x, float* out, int n) {
    int column = blockIdx.x * TILE + threadIdx.x;
    int row = blockIdx.y * TILE + threadIdx.y;
    out[column * n + row] = x[row * n + column];
}

__global__ void transpose_tiled(const float* x, float* out, int n) {
    __shared__ float tile[TILE][TILE];
    int column = blockIdx.x * TILE + threadIdx.x;
    int row = blockIdx.y * TILE + threadIdx.y;
    tile[threadIdx.y][threadIdx.x] = x[row * n + column];
    __syncthreads();
    column = blockIdx.y * TILE + threadIdx.x;
    row = blockIdx.x * TILE + threadIdx.y;
    out[row * n + column] = tile[threadIdx.x][threadIdx.y];
}

__global__ void transpose_padded(const float* x, float* out, int n) {
    __shared__ float tile[TILE][TILE + 1];
    int column = blockIdx.x * TILE + threadIdx.x;
    int row = blockIdx.y * TILE + threadIdx.y;
    tile[threadIdx.y][threadIdx.x] = x[row * n + column];
    __syncthreads();
    column = blockIdx.y * TILE + threadIdx.x;
    row = blockIdx.x * TILE + threadIdx.y;
    out[row * n + column] = tile[threadIdx.x][threadIdx.y];
}

__global__ void transpose_swizzled(const float* x, float* out, int n) {
    __shared__ float tile[TILE][TILE];
    int column = blockIdx.x * TILE + threadIdx.x;
    int row = blockIdx.y * TILE + threadIdx.y;
    tile[threadIdx.y][threadIdx.x ^ threadIdx.y] = x[row * n + column];
    __syncthreads();
    column = blockIdx.y * TILE + threadIdx.x;
    row = blockIdx.x * TILE + threadIdx.y;
    out[row * n + column] = tile[threadIdx.x][threadIdx.y ^ threadIdx.x];
}

// Sixteen threads a row: a warp covers two rows of the tile.
__global__ void transpose_narrow(const float* x, float* out, int n) {
    __shared__ float tile[16][16];
    int column = blockIdx.x * 16 + threadIdx.x;
    int row = blockIdx.y * 16 + threadIdx.y;
    tile[threadIdx.y][threadIdx.x] = x[row * n + column];
    __syncthreads();
    column = blockIdx.y * 16 + threadIdx.x;
    row = blockIdx.x * 16 + threadIdx.y;
    out[row * n + column] = tile[threadIdx.x][threadIdx.y];
}
