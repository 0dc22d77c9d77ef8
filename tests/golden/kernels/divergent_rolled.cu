// Threads of a warp that run a loop a different number of times, each loop as the source
// has it: `unroll 1` keeps nvcc from running several iterations at once.

__global__ void uneven_loop_rolled(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
#pragma unroll 1
    for (int k = 0; k <= i % 7; ++k) sum += x[(i + 32 * k) % n];
    out[i] = sum;
}

__global__ void sparse_rows_rolled(const int* start, const int* column,
                                   const float* value, const float* x,
                                   float* out, int rows) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f;
    int end = start[row + 1];
#pragma unroll 1
    for (int k = start[row]; k < end; ++k) sum += value[k] * x[column[k]];
    out[row] = sum;
}

__global__ void search_rolled(const float* sorted, const float* wanted,
                              int* place, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int low = 0, high = n;
    float mine = wanted[i];
#pragma unroll 1
    while (low < high) {
        int middle = (low + high) / 2;
        if (sorted[middle] < mine) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    place[i] = low;
}

// The inner loop's end is the lane's own, and all lanes meet before the next outer round.
__global__ void uneven_inside_even(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
#pragma unroll 1
    for (int round = 0; round < 6; ++round) {
#pragma unroll 1
        for (int k = 0; k <= (i + round) % 5; ++k)
            sum += x[(i + 96 * k + 512 * round) % n];
        sum *= x[(i + 1024 + round) % n];
    }
    out[i] = sum;
}

// Both loops' ends are the lane's own; nothing is read between them.
__global__ void uneven_inside_uneven(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
#pragma unroll 1
    for (int round = 0; round <= i % 4; ++round) {
#pragma unroll 1
        for (int k = 0; k <= (i / 2 + round) % 6; ++k)
            sum += x[(i + 96 * k + 512 * round) % n];
    }
    out[i] = sum;
}

// Two ways through each iteration, chosen by data.
__global__ void branch_in_loop(const float* x, const int* pick, float* out,
                               int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
#pragma unroll 1
    for (int k = 0; k < 12; ++k) {
        int at = pick[(i * 13 + k) % n];
        if (at % 3 == 0) {
            sum += x[(at + k) % n];
            sum *= x[(i + 7 * k) % n];
        } else {
            sum -= x[(i + 3 * k) % n];
        }
    }
    out[i] = sum;
}

// Each thread follows its own chain to the end: lengths as uneven as the data.
__global__ void follow_chain(const int* next, const float* x, float* out,
                             int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    int at = i;
#pragma unroll 1
    for (int steps = 0; steps < 40 && at >= 0; ++steps) {
        sum += x[at];
        at = next[at];
    }
    out[i] = sum;
}

// Some lanes leave the loop in its middle, some skip its second half.
__global__ void leave_and_skip(const int* pick, const float* x, float* out,
                               int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
#pragma unroll 1
    for (int k = 0; k < 16; ++k) {
        int at = pick[(i * 5 + k * 64) % n];
        if (at % 29 == 0) break;
        if (at % 3 == 0) continue;
        sum += x[at];
    }
    out[i] = sum;
}

// A long row now and then: far more accesses than a trace keeps open at once.
__global__ void one_long_row(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
#pragma unroll 1
    for (int round = 0; round < 40; ++round) {
        int steps = (i * 7 + round) % 32 == 0 ? 60 : 2;
#pragma unroll 1
        for (int k = 0; k < steps; ++k)
            sum += x[(i * 8 + k + 256 * round) % n];
        sum += x[(i + round) % n];
    }
    out[i] = sum;
}

// What a lane does on its way out it does in the round that it leaves in.
__global__ void load_and_leave(const int* pick, const float* x, float* out,
                               int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
#pragma unroll 1
    for (int k = 0; k < 16; ++k) {
        int at = pick[(i * 5 + k * 64) % n];
        if (at % 7 == 0) {
            sum += x[at];
            sum *= x[(at + k) % n];
            break;
        }
        sum += x[(i + 32 * k) % n];
    }
    out[i] = sum * x[i];
}

// One way of a branch leads out of the loop, and behind the branch the others meet.
__global__ void leave_from_a_branch(const int* pick, const float* x,
                                    float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
#pragma unroll 1
    for (int k = 0; k < 16; ++k) {
        int at = pick[(i * 5 + k * 64) % n];
        if (at % 3 == 0) {
            sum += x[at];
            sum *= x[(at + 5 * k) % n];
        } else {
            if (at % 5 == 0) sum -= x[(at + i) % n];
            if (at % 11 == 0) break;
        }
        sum += x[(i + 32 * k) % n];
        sum *= x[(3 * i + k) % n];
    }
    out[i] = sum * x[i];
}

// Some lanes are done while the others go on, and these meet behind the loop.
__global__ void return_from_the_loop(const int* pick, const float* x,
                                     float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
#pragma unroll 1
    for (int k = 0; k <= i % 9; ++k) {
        int at = pick[(i * 5 + k * 64) % n];
        if (at % 13 == 0) {
            out[i] = x[at];
            return;
        }
        sum += x[(i + 32 * k) % n];
    }
    sum *= x[(i + 7) % n];
    out[i] = sum * x[(2 * i) % n];
}
