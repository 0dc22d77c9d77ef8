// A half ends at 65,504: exp(x) passes that beyond x = 11.09, and a sum of many
// such exponentials sooner. The maximum taken away first, no exponential passes 1;
// and since more than 65,504 ones can stand in a row, the sum is kept in float.

// [exercise:fp16_overflow]
#include <cuda_fp16.h>

__global__ void fp16_overflow(const __half* x, __half* out, int columns) {
    const __half* in = x + (long long)blockIdx.x * columns;
    __half* to = out + (long long)blockIdx.x * columns;
    int t = threadIdx.x;
    // [hole]
    // [broken]
    // __shared__ __half part[256];
    // __half sum = __float2half(0.0f);
    // for (int c = t; c < columns; c += 256) {
    //     __half e = __float2half(expf(__half2float(in[c])));
    //     sum = __hadd(sum, e);
    // }
    // part[t] = sum;
    // __syncthreads();
    // for (int stride = 128; stride > 0; stride /= 2) {
    //     if (t < stride) part[t] = __hadd(part[t], part[t + stride]);
    //     __syncthreads();
    // }
    // float total = __half2float(part[0]);
    // for (int c = t; c < columns; c += 256) {
    //     __half e = __float2half(expf(__half2float(in[c])));
    //     to[c] = __float2half(__half2float(e) / total);
    // }
    // [/broken]
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
        sum += expf(__half2float(in[c]) - most);
    }
    part[t] = sum;
    __syncthreads();
    for (int stride = 128; stride > 0; stride /= 2) {
        if (t < stride) part[t] += part[t + stride];
        __syncthreads();
    }
    float total = part[0];
    for (int c = t; c < columns; c += 256) {
        float e = expf(__half2float(in[c]) - most);
        to[c] = __float2half(e / total);
    }
    // [/hole]
}
// [/exercise]
