// The tiles of a product with ragged experts: which expert each has, its first row, and
// where that expert's rows end. Block e lists expert e's; the block behind the last
// lists the rows that are no expert's, if asked, and how many tiles there are.
constexpr int TALL = 128;  // rows of a tile

struct alignas(16) Tile {
    int expert, row, end, unused;
};

struct Segment {
    int begin, end;

    __device__ int tiles() const {
        return (end - begin + TALL - 1) / TALL;
    }
};

// What an expert has; whatever the offsets are, it lies within the rows there are.
__device__ Segment segment_of(const int* begins, const int* ends,
                              int expert, int height, int round) {
    const int from = begins   ? begins[expert]
                     : expert ? ends[expert - 1]
                              : 0;
    const int begin = min(max(from, 0), height);
    const int rows = max(min(ends[expert], height) - begin, 0);
    return {begin,
            min(begin + (rows + round - 1) / round * round, height)};
}

extern "C" __global__ void __launch_bounds__(32)
    list_tiles(const int* begins, const int* ends, Tile* tiles,
               int experts, int height, int round, int others_too) {
    const int lane = threadIdx.x, expert = blockIdx.x;
    int before = 0, last = 0;
    for (int e = lane; e < expert; e += 32) {
        const Segment one = segment_of(begins, ends, e, height, round);
        before += one.tiles();
        last = max(last, one.end);
    }
    for (int step = 16; step > 0; step /= 2) {
        before += __shfl_xor_sync(0xffffffffu, before, step);
        last = max(last, __shfl_xor_sync(0xffffffffu, last, step));
    }
    Segment mine = {last, last};
    if (expert < experts) {
        mine = segment_of(begins, ends, expert, height, round);
    } else {
        if (others_too) mine.end = height;
        if (lane == 0) tiles[0] = {before + mine.tiles(), 0, 0, 0};
    }
    for (int i = lane; i < mine.tiles(); i += 32) {
        tiles[1 + before + i] = {expert < experts ? expert : -1,
                                 mine.begin + i * TALL, mine.end, 0};
    }
}
