// The lower four bits of a byte are shifted up and down again to bring their sign along,
// as a byte would; but a byte in an expression is an int, and there is room for them in
// an int: nothing is shifted out and nothing comes back.

// [exercise:sign_extension]
__global__ void sign_extension(const signed char* bytes, float scale,
                               float* out, int n) {
    // [hole]
    // [broken]
    // int i = blockIdx.x * blockDim.x + threadIdx.x;
    // if (i < n / 2) {
    //     signed char both = bytes[i];
    //     int low = (both & 15) << 4 >> 4;
    //     int high = both >> 4;
    //     float2 pair = make_float2(scale * low, scale * high);
    //     reinterpret_cast<float2*>(out)[i] = pair;
    // }
    // [/broken]
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n / 2) {
        signed char both = bytes[i];
        int low = static_cast<signed char>(both << 4) >> 4;
        int high = both >> 4;
        float2 pair = make_float2(scale * low, scale * high);
        reinterpret_cast<float2*>(out)[i] = pair;
    }
    // [/hole]
}
// [/exercise]
