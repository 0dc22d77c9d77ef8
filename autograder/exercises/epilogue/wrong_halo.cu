// The flat index is inside of x, and the neighbour is not inside of the image: left of
// column 0 lies the end of the row above, and above row 0 the image before. So row and
// column are tested each by itself, before they become one index.

// [exercise:wrong_halo]
// A filter of 3 x 3 for each channel; zeros around each image. x and out are
// (images, height, width, channels), weight (3, 3, channels).
__global__ void wrong_halo(const float* x, const float* weight, float* out,
                           int images, int height, int width,
                           int channels) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int n = images * height * width * channels;
    if (i >= n) return;
    // [hole]
    // [broken]
    // float sum = 0.0f;
    // for (int down = -1; down <= 1; ++down) {
    //     for (int across = -1; across <= 1; ++across) {
    //         int at = i + (down * width + across) * channels;
    //         int place = (down + 1) * 3 + across + 1;
    //         if (at >= 0 && at < n)
    //             sum += x[at] * weight[place * channels + i % channels];
    //     }
    // }
    // out[i] = sum;
    // [/broken]
    int column = i / channels % width, row = i / channels / width % height;
    float sum = 0.0f;
    for (int down = -1; down <= 1; ++down) {
        for (int across = -1; across <= 1; ++across) {
            int at = i + (down * width + across) * channels;
            int place = (down + 1) * 3 + across + 1;
            int r = row + down, c = column + across;
            bool inside = r >= 0 && r < height && c >= 0 && c < width;
            if (inside)
                sum += x[at] * weight[place * channels + i % channels];
        }
    }
    out[i] = sum;
    // [/hole]
}
// [/exercise]
