// The package's kernels: elements of 1, 2, 4 and 8 bytes, batches, any shape.
//
// Matrices lie one after another; tiles are numbered in one row, and a tile's
// number says which matrix, which rows and which columns it covers.

template <typename T>
struct Width {
    // Elements that a thread moves with one instruction: 16 bytes of them, but
    // 8 of single bytes, whose 16 x 16 square would not fit its registers.
    static constexpr int value = sizeof(T) == 1 ? 8 : 16 / sizeof(T);
};

template <typename T>
struct alignas(sizeof(T) * Width<T>::value) Pack {
    T lane[Width<T>::value];
};

struct Shape {
    long long rows, columns;      // of one matrix of x
    int row_tiles, column_tiles;  // how many tiles cover it
    bool downward;                // go down a column of tiles first
};

// With a hint that nobody reads it soon. It also keeps the pack whole: a plain
// store of one that was put together in registers is compiled lane by lane.
template <typename T>
__device__ void store(T* to, const Pack<T>& pack) {
    if constexpr (sizeof(pack) == 16) {
        uint4 whole;
        memcpy(&whole, &pack, 16);
        __stcs(reinterpret_cast<uint4*>(to), whole);
    } else {
        uint2 whole;
        memcpy(&whole, &pack, 8);
        __stcs(reinterpret_cast<uint2*>(to), whole);
    }
}

struct Place {
    long long matrix;       // which one
    long long row, column;  // of the tile's first element
};

// Blocks that run at the same time are neighbours. Down a column of tiles they
// write one stretch of out together, along a row they read one stretch of x.
__device__ Place tile_place(const Shape& shape, int tile_rows,
                            int tile_columns) {
    const int each = shape.row_tiles * shape.column_tiles;
    const int matrix = blockIdx.x / each, tile = blockIdx.x % each;
    const int row = shape.downward ? tile % shape.row_tiles
                                   : tile / shape.column_tiles;
    const int column = shape.downward ? tile / shape.row_tiles
                                      : tile % shape.column_tiles;
    return {matrix, static_cast<long long>(row) * tile_rows,
            static_cast<long long>(column) * tile_columns};
}

template <typename T>
__device__ void turn(const Pack<T> (&in)[Width<T>::value],
                     Pack<T> (&out)[Width<T>::value]) {
#pragma unroll
    for (int r = 0; r < Width<T>::value; ++r) {
#pragma unroll
        for (int c = 0; c < Width<T>::value; ++c) {
            out[c].lane[r] = in[r].lane[c];
        }
    }
}

// Without shared memory: each thread transposes a square of packs in its
// registers. The lanes of a warp form LANE_ROWS x (32 / LANE_ROWS) squares, the
// warps of a block WARP_ROWS x WARP_COLUMNS of those, and every request, in
// either direction, covers whole sectors.
template <typename T, int LANE_ROWS, int WARP_ROWS, int WARP_COLUMNS>
__global__ void transpose_registers(const T* __restrict__ x,
                                    T* __restrict__ out, long long rows,
                                    long long columns, int row_tiles,
                                    int column_tiles, bool downward) {
    const Shape shape{rows, columns, row_tiles, column_tiles, downward};
    constexpr int width = Width<T>::value;
    constexpr int lane_columns = 32 / LANE_ROWS;
    constexpr int across = WARP_COLUMNS * lane_columns;
    constexpr int down = WARP_ROWS * LANE_ROWS;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int square_column =
        warp % WARP_COLUMNS * lane_columns + lane % lane_columns;
    const int square_row =
        warp / WARP_COLUMNS * LANE_ROWS + lane / lane_columns;
    const Place at = tile_place(shape, down * width, across * width);
    const long long row = at.row + square_row * width;
    const long long column = at.column + square_column * width;
    if (row >= shape.rows || column >= shape.columns) return;
    const long long matrix = at.matrix * shape.rows * shape.columns;
    x += matrix + row * shape.columns + column;
    out += matrix + column * shape.rows + row;
    Pack<T> in[width], turned[width];
#pragma unroll
    for (int r = 0; r < width; ++r) {
        in[r] = *reinterpret_cast<const Pack<T>*>(x + r * shape.columns);
    }
    turn<T>(in, turned);
#pragma unroll
    for (int c = 0; c < width; ++c) {
        store(out + c * shape.rows, turned[c]);
    }
}

// The same squares, handed over through a swizzled tile of packs, so that a
// request writes SIDE packs of one row: 256 bytes side by side for SIDE = 16.
template <typename T, int SIDE>
__global__ void transpose_staged(const T* __restrict__ x,
                                 T* __restrict__ out, long long rows,
                                 long long columns, int row_tiles,
                                 int column_tiles, bool downward) {
    const Shape shape{rows, columns, row_tiles, column_tiles, downward};
    constexpr int width = Width<T>::value;
    __shared__ Pack<T> tile[SIDE * width][SIDE];
    const int across = threadIdx.x % SIDE, down = threadIdx.x / SIDE;
    const Place at = tile_place(shape, SIDE * width, SIDE * width);
    const long long matrix = at.matrix * shape.rows * shape.columns;
    const long long row = at.row + down * width;
    const long long column = at.column + across * width;
    if (row < shape.rows && column < shape.columns) {
        Pack<T> in[width], turned[width];
        x += matrix + row * shape.columns + column;
#pragma unroll
        for (int r = 0; r < width; ++r) {
            in[r] =
                *reinterpret_cast<const Pack<T>*>(x + r * shape.columns);
        }
        turn<T>(in, turned);
#pragma unroll
        for (int c = 0; c < width; ++c) {
            // Row across * width + c of the tile: (its number / width) is
            // `across`, which names the order of its packs.
            tile[across * width + c][down ^ across] = turned[c];
        }
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < width; ++k) {
        const int c = k * SIDE + down;
        const long long to_row = at.column + c;
        const long long to_column = at.row + across * width;
        if (to_row < shape.columns && to_column < shape.rows) {
            store(out + matrix + to_row * shape.rows + to_column,
                  tile[c][across ^ (c / width)]);
        }
    }
}

// Any shape and any address: one element an instruction, a padded tile.
// 32 x 8 threads; the padding is one 4-byte bank, whatever the element.
template <typename T>
__global__ void transpose_any(const T* __restrict__ x, T* __restrict__ out,
                              long long rows, long long columns,
                              int row_tiles, int column_tiles,
                              bool downward) {
    constexpr int side = 64;
    constexpr int padding = sizeof(T) < 4 ? 4 / sizeof(T) : 1;
    __shared__ T tile[side][side + padding];
    const Shape shape{rows, columns, row_tiles, column_tiles, downward};
    const Place at = tile_place(shape, side, side);
    x += at.matrix * rows * columns;
    out += at.matrix * rows * columns;
    // In one loop, so that the loads of all 16 elements are on their way
    // before the first is put into the tile.
#pragma unroll
    for (int k = 0; k < 16; ++k) {
        const int r = threadIdx.y + k / 2 * 8,
                  c = threadIdx.x + k % 2 * 32;
        const long long row = at.row + r, column = at.column + c;
        if (row < rows && column < columns) {
            tile[r][c] = x[row * columns + column];
        }
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 16; ++k) {
        const int r = threadIdx.x + k % 2 * 32,
                  c = threadIdx.y + k / 2 * 8;
        const long long row = at.row + r, column = at.column + c;
        if (row < rows && column < columns) {
            out[column * rows + row] = tile[r][c];
        }
    }
}
