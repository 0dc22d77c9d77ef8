// Threads of a warp that do different amounts of work, or different work.

__global__ void uneven_loop(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    for (int k = 0; k <= i % 7; ++k) sum += x[(i + 32 * k) % n];
    out[i] = sum;
}

__global__ void two_branches(const float* x, float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x % 2) {
        out[i] = 2.0f * x[i];
    } else {
        out[i] = x[i] * x[i] + 1.0f;
    }
}

__global__ void half_a_warp(const float* x, float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x % 32 < 16) out[i] = x[i];
}

// Rows of a sparse matrix, one a thread: as uneven as the data.
__global__ void sparse_rows(const int* start, const int* column,
                            const float* value, const float* x, float* out,
                            int rows) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int k = start[row]; k < start[row + 1]; ++k) {
        sum += value[k] * x[column[k]];
    }
    out[row] = sum;
}

__global__ void search(const float* sorted, const float* wanted,
                       int* place, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int low = 0, high = n;
    while (low < high) {
        int middle = (low + high) / 2;
        if (sorted[middle] < wanted[i]) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    place[i] = low;
}
