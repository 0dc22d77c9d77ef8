// A convolution as the product of a matrix that is never built: rows are pixels of the
// result, columns its channels, and k runs over the filter's places and x's channels.

// [exercise:conv_bias_act]
#include <kw/tiles.cuh>

// x (batch, height, width, channels),
// weight (out_channels, r, s, channels).
struct Shape {
    int batch, height, width, channels, out_channels, r, s;
    int stride, padding;
    __device__ int out_height() const {
        return (height + 2 * padding - r) / stride + 1;
    }
    __device__ int out_width() const {
        return (width + 2 * padding - s) / stride + 1;
    }
    __device__ int pixels() const {
        return batch * out_height() * out_width();
    }
    __device__ int k() const { return r * s * channels; }
};

// Where elements k to k + 7 of row `pixel` begin in x; nullptr: zeros.
__device__ const __half* source(const __half* x, int pixel, int k,
                                Shape of) {
    const __half* found = nullptr;
    // [hole]
    int channel = k % of.channels, place = k / of.channels;
    int across = pixel % of.out_width(), down = pixel / of.out_width();
    int image = down / of.out_height();
    down %= of.out_height();
    int row = down * of.stride - of.padding + place / of.s;
    int column = across * of.stride - of.padding + place % of.s;
    bool inside = row >= 0 && row < of.height;
    inside = inside && column >= 0 && column < of.width;
    if (inside && pixel < of.pixels() && k < of.k()) {
        int at = (image * of.height + row) * of.width + column;
        found = x + at * of.channels + channel;
    }
    // [/hole]
    return found;
}

// Copies eight halves to (row, column) of a tile; zeros from nullptr.
__device__ void bring(__half* tile, int row, int column,
                      const __half* from, const __half* any) {
    __half* to = tile + kw::swizzled(row, column, 64);
    kw::cp_async<16>(to, from ? from : any, from != nullptr);
}

// Launch: grid (out_channels / 64, pixels / 128), rounded up; block 128.
__global__ void __launch_bounds__(128)
    conv_bias_act(const __half* x, const __half* weight,
                  const __half* bias, __half* out, int batch, int height,
                  int width, int channels, int out_channels, int r, int s,
                  int stride, int padding) {
    __shared__ __align__(128) __half left[128 * 64], right[64 * 64];
    Shape of = {batch, height, width,  channels, out_channels,
                r,     s,      stride, padding};
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int pixel = blockIdx.y * 128, channel = blockIdx.x * 64;
    float sum[4][4][4] = {};  // 16 x 8 each: the warp's 64 x 32
    for (int i = 0; i < of.k(); i += 64) {
        int column = threadIdx.x % 8 * 8, k = i + column;
        for (int row = threadIdx.x / 8; row < 128; row += 16)
            bring(left, row, column, source(x, pixel + row, k, of), x);
        for (int row = threadIdx.x / 8; row < 64; row += 16) {
            int c = channel + row;
            bool there = c < out_channels && k < of.k();
            bring(right, row, column,
                  there ? weight + c * of.k() + k : nullptr, weight);
        }
        kw::cp_async_commit();
        kw::cp_async_wait<0>();
        __syncthreads();
        kw::multiply_rows(sum, left, right);
        __syncthreads();
    }
    // [hole]
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        int c = channel + warp % 2 * 32 + 8 * j + lane % 4 * 2;
        if (c >= out_channels) continue;
        float2 b =
            __half22float2(*reinterpret_cast<const half2*>(bias + c));
#pragma unroll
        for (int i = 0; i < 4; ++i) {
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                int p = pixel + warp / 2 * 64 + 16 * i + 8 * h + lane / 4;
                float first = sum[i][j][2 * h] + b.x;
                float second = sum[i][j][2 * h + 1] + b.y;
                first = first < 0.0f ? 0.0f : first;  // NaN stays NaN
                second = second < 0.0f ? 0.0f : second;
                if (p < of.pixels())
                    *reinterpret_cast<half2*>(out + p * out_channels + c) =
                        __floats2half2_rn(first, second);
            }
        }
    }
    // [/hole]
}
// [/exercise]
