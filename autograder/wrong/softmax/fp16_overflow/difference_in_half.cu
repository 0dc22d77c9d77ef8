// expect: x - maximum is rounded to a half
#include <cuda_fp16.h>

__global__ void fp16_overflow(const __half* x, __half* out, int columns) {
    const __half* in = x + (long long)blockIdx.x * columns;
    __half* to = out + (long long)blockIdx.x * columns;
    int t = threadIdx.x;
    __shared__ float part[256];
    float most = -INFINITY;
    for (int c = t; c < columns; c += 256) {
        most = fmaxf(most, __half2float(in[c]));
    }
    part[t] = most;
    __syncthreads();
    for (int stride = 128; stride > 0; stride /= 2) {
        if (t < stride) part[t] = fmaxf(part[t], part[t + stride]);
        __syncthreads();
    }
    most = part[0];
    __syncthreads();  // all have read part[0] before it is written again
    float sum = 0.0f;
    for (int c = t; c < columns; c += 256) {
        sum += expf(__half2float(__hsub(in[c], __float2half(most))));
    }
    part[t] = sum;
    __syncthreads();
    for (int stride = 128; stride > 0; stride /= 2) {
        if (t < stride) part[t] += part[t + stride];
        __syncthreads();
    }
    float total = part[0];
    for (int c = t; c < columns; c += 256) {
        float e = expf(__half2float(__hsub(in[c], __float2half(most))));
        to[c] = __float2half(e / total);
    }
}
