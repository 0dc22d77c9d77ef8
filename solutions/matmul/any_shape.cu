// c = a @ b for every shape: batches, 64-bit addresses, either operand stored by
// rows or by columns, packs of 16 bytes where they fit and single elements where
// they do not. A block computes BM x BN elements of c; its warps share the
// tile out, and each lane keeps TM x TN sums in registers.
//
// `matmul` brings its tiles through registers, in fp32 or fp64, on any chip;
// `matmul_pipelined` by asynchronous copies (compute capability 8.0), several
// tiles ahead, in fp32: what is fast on large products.

#include <kw/cp_async.cuh>

template <typename T, int P>
struct alignas(P * sizeof(T)) Pack {
    T item[P];
};

// An operand as the kernel sees it: rows of `outer`, steps of k. Elements are
// `along` apart in the direction that is not contiguous.
template <typename T>
struct Side {
    const T* data;
    long long along;
    int outer;
};

// Brings tiles of BK x X to shared memory through registers: tile[k][x]. Where
// k is the contiguous direction (BY_K) the tile is turned on the way, and rows
// are P longer, which puts a warp's stores into 32 banks.
template <typename T, int X, int BK, bool BY_K, int P, int THREADS>
struct Loader {
    static constexpr int PITCH = BY_K ? X + 16 / (int)sizeof(T) : X;
    static constexpr int ACROSS =
        BY_K ? BK / P : X / P;                     // packs a tile row
    static constexpr int STEP = THREADS / ACROSS;  // tile rows a round
    static constexpr int ROUNDS = (BY_K ? X : BK) / STEP;
    static_assert(THREADS % ACROSS == 0 && (BY_K ? X : BK) % STEP == 0,
                  "");

    Pack<T, P> held[ROUNDS];
    const T* from;
    long long along;
    int inside, beside, outer;  // inside: along the contiguous direction

    __device__ Loader(const Side<T>& side, int first) {
        inside = threadIdx.x % ACROSS * P;
        beside = threadIdx.x / ACROSS;
        along = side.along;
        outer = side.outer - first;
        from = side.data;
        from += BY_K ? (first + beside) * along + inside
                     : beside * along + first + inside;
    }

    // Steps past the last count as 0. A tile with fewer than BK of them comes
    // first, so that no other has to ask. Rows past the edge keep what they
    // held: nobody stores what becomes of it.
    template <bool WHOLE>
    __device__ void load(int steps) {
#pragma unroll
        for (int i = 0; i < ROUNDS; ++i) {
            int x = BY_K ? beside + i * STEP : inside;
            int k = BY_K ? inside : beside + i * STEP;
            if (!WHOLE) held[i] = {};
            if (x < outer && (WHOLE || k < steps)) {
                held[i] = *reinterpret_cast<const Pack<T, P>*>(
                    from + i * STEP * along);
            }
        }
        from += BY_K ? steps : steps * along;
    }

    __device__ void store(T* tile) const {
#pragma unroll
        for (int i = 0; i < ROUNDS; ++i) {
            int row = beside + i * STEP;
            if constexpr (BY_K) {
#pragma unroll
                for (int j = 0; j < P; ++j) {
                    tile[(inside + j) * PITCH + row] = held[i].item[j];
                }
            } else {
                *reinterpret_cast<Pack<T, P>*>(tile + row * PITCH +
                                               inside) = held[i];
            }
        }
    }
};

// Blocks that run together stand in a column of 8 tiles and its neighbours, so
// that they read the same rows of a and columns of b out of L2.
__device__ inline void place_of(long long id, int down, int across, int& i,
                                int& j) {
    const int HEIGHT = 8;
    int group = id / (HEIGHT * across);
    int within = id % (HEIGHT * across);
    int height = min(HEIGHT, down - group * HEIGHT);
    i = group * HEIGHT + within % height;
    j = within / height;
}

// Reads what a lane needs of one step, a row of a tile: COUNT elements, in packs
// that lie LANES packs apart.
template <int COUNT, int LANES, typename T>
__device__ inline void fetch(T (&into)[COUNT], const T* from) {
    constexpr int VECTOR = 16 / sizeof(T);
    using Vector = Pack<T, VECTOR>;
#pragma unroll
    for (int g = 0; g < COUNT / VECTOR; ++g) {
        *reinterpret_cast<Vector*>(&into[g * VECTOR]) =
            *reinterpret_cast<const Vector*>(from + g * LANES * VECTOR);
    }
}

template <int TM, int TN, typename T>
__device__ inline void multiply(T (&sums)[TM][TN], const T (&x)[TM],
                                const T (&y)[TN]) {
#pragma unroll
    for (int r = 0; r < TM; ++r) {
#pragma unroll
        for (int s = 0; s < TN; ++s) sums[r][s] += x[r] * y[s];
    }
}

// Stores a lane's sums, those inside c.
template <int TM, int TN, int LANES_M, bool WIDE, typename T>
__device__ inline void write(T (&sums)[TM][TN], T* c, int m, int n,
                             int row, int column) {
    constexpr int VECTOR = 16 / sizeof(T), LANES_N = 32 / LANES_M;
    using Vector = Pack<T, VECTOR>;
#pragma unroll
    for (int r = 0; r < TM; ++r) {
        int at = row + r / VECTOR * LANES_M * VECTOR + r % VECTOR;
#pragma unroll
        for (int g = 0; g < TN / VECTOR; ++g) {
            int to = column + g * LANES_N * VECTOR;
            T* out = c + (long long)at * n + to;
            if constexpr (WIDE) {
                if (at < m && to < n) {
                    *reinterpret_cast<Vector*>(out) =
                        *reinterpret_cast<Vector*>(&sums[r][g * VECTOR]);
                }
            } else {
#pragma unroll
                for (int s = 0; s < VECTOR; ++s) {
                    if (at < m && to + s < n)
                        out[s] = sums[r][g * VECTOR + s];
                }
            }
        }
    }
}

// The first row and column of a lane's sums in its block. They stand in groups of
// VECTOR x VECTOR, one group of every lane before the next. The bits of a lane's
// number take turns: where lanes i and i ^ 1, or i and i ^ 2, read the same 16
// bytes, shared memory serves half a warp in a wavefront instead of a quarter.
template <int WM, int WN, int WARPS_N, int LANES_M, int VECTOR>
__device__ inline void lane_place(int& row, int& column) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int down = lane / 2 % 2, across = lane % 2 + lane / 4 % 2 * 2;
    if constexpr (LANES_M == 8) {
        down += lane / 8 * 2;
    } else {
        down += lane / 8 % 2 * 2;
        across += lane / 16 * 4;
    }
    row = warp / WARPS_N * WM + down * VECTOR;
    column = warp % WARPS_N * WN + across * VECTOR;
}

template <typename T, int BM, int BN, int BK, int WARPS_M, int WARPS_N,
          int LANES_M, int RESIDENT, bool A_BY_K, bool B_BY_K, bool WIDE>
__global__ void __launch_bounds__(32 * WARPS_M * WARPS_N, RESIDENT)
    matmul(const T* a, const T* b, T* c, int m, int n, int k,
           long long a_along, long long b_along, long long a_batch,
           long long b_batch) {
    constexpr int THREADS = 32 * WARPS_M * WARPS_N;
    constexpr int VECTOR = 16 / sizeof(T);
    constexpr int P = WIDE ? VECTOR : 1;
    constexpr int LANES_N = 32 / LANES_M;
    constexpr int WM = BM / WARPS_M, WN = BN / WARPS_N;  // a warp's part
    constexpr int TM = WM / LANES_M, TN = WN / LANES_N;  // a lane's part
    using A = Loader<T, BM, BK, A_BY_K, P, THREADS>;
    using B = Loader<T, BN, BK, B_BY_K, P, THREADS>;

    __shared__ alignas(16) T a_tile[2][BK * A::PITCH];
    __shared__ alignas(16) T b_tile[2][BK * B::PITCH];

    int down = (m + BM - 1) / BM, across = (n + BN - 1) / BN;
    long long tiles = (long long)down * across;
    long long batch = blockIdx.x / tiles;
    int i, j;
    place_of(blockIdx.x % tiles, down, across, i, j);

    A left({a + batch * a_batch, a_along, m}, i * BM);
    B right({b + batch * b_batch, b_along, n}, j * BN);
    int row, column;
    lane_place<WM, WN, WARPS_N, LANES_M, VECTOR>(row, column);

    T sums[TM][TN] = {};
    T x[TM], y[TN];
    int rounds = (k + BK - 1) / BK;
    int first = k - (rounds - 1) * BK;
    left.template load<false>(first);
    right.template load<false>(first);
    left.store(a_tile[0]);
    right.store(b_tile[0]);
    __syncthreads();
    int buffer = 0;
    for (int round = 1; round <= rounds; ++round) {
        bool more = round < rounds;
        if (more) {  // on their way while this pair of tiles is used
            left.template load<true>(BK);
            right.template load<true>(BK);
        }
#pragma unroll
        for (int step = 0; step < BK; ++step) {
            fetch<TM, LANES_M>(x, a_tile[buffer] + step * A::PITCH + row);
            fetch<TN, LANES_N>(y,
                               b_tile[buffer] + step * B::PITCH + column);
            multiply(sums, x, y);
        }
        if (more) {
            buffer ^= 1;
            left.store(a_tile[buffer]);
            right.store(b_tile[buffer]);
            __syncthreads();
        }
    }

    c += batch * m * n;
    write<TM, TN, LANES_M, WIDE>(sums, c, m, n, i * BM + row,
                                 j * BN + column);
}

// Sends tiles of BK x X to shared memory, tile[k][x], while others are used. A
// copy of 4 bytes can turn the tile on its way, where k is the contiguous
// direction: eight lanes take a sector along k, and rows 4 floats longer keep a
// warp's 32 words in 32 banks.
template <int X, int BK, bool BY_K, int P, int THREADS>
struct Sender {
    static constexpr int PITCH = BY_K ? X + 4 : X;
    static constexpr int SIZE = BK * PITCH;
    static constexpr int ACROSS = BY_K ? 8 : X / P;
    static constexpr int STEP = THREADS / ACROSS;
    static constexpr int ROUNDS = (BY_K ? X : BK) / STEP;
    static_assert(THREADS % ACROSS == 0 && (BY_K ? X : BK) % STEP == 0,
                  "");

    const float* from;
    long long along;
    int inside, beside, outer;

    __device__ Sender(const Side<float>& side, int first) {
        inside = threadIdx.x % ACROSS * (BY_K ? 1 : P);
        beside = threadIdx.x / ACROSS;
        along = side.along;
        outer = side.outer - first;
        from = side.data;
        from += BY_K ? (first + beside) * along + inside
                     : beside * along + first + inside;
    }

    // What is past the edges, or past the last of `steps`, arrives as zeros.
    template <bool WHOLE>
    __device__ void send(float* tile, int steps) {
#pragma unroll
        for (int i = 0; i < ROUNDS; ++i) {
            if constexpr (BY_K) {
#pragma unroll
                for (int j = 0; j < BK; j += 8) {
                    int x = beside + i * STEP, k = inside + j;
                    bool valid = x < outer && (WHOLE || k < steps);
                    kw::cp_async<4>(&tile[k * PITCH + x],
                                    from + i * STEP * along + j, valid);
                }
            } else {
                int k = beside + i * STEP;
                bool valid = inside < outer && (WHOLE || k < steps);
                kw::cp_async<4 * P>(&tile[k * PITCH + inside],
                                    from + i * STEP * along, valid);
            }
        }
        from += BY_K ? steps : steps * along;
    }
};

template <int STAGES, int BM, int BN, int BK, int WARPS_M, int WARPS_N,
          int LANES_M, int RESIDENT, bool A_BY_K, bool B_BY_K, bool WIDE>
__global__ void __launch_bounds__(32 * WARPS_M * WARPS_N, RESIDENT)
    matmul_pipelined(const float* a, const float* b, float* c, int m,
                     int n, int k, long long a_along, long long b_along,
                     long long a_batch, long long b_batch) {
    constexpr int THREADS = 32 * WARPS_M * WARPS_N;
    constexpr int P = WIDE ? 4 : 1;
    constexpr int LANES_N = 32 / LANES_M;
    constexpr int WM = BM / WARPS_M, WN = BN / WARPS_N;
    constexpr int TM = WM / LANES_M, TN = WN / LANES_N;
    using A = Sender<BM, BK, A_BY_K, P, THREADS>;
    using B = Sender<BN, BK, B_BY_K, P, THREADS>;

    extern __shared__ float4 room[];  // STAGES pairs of tiles
    float* a_tiles = reinterpret_cast<float*>(room);
    float* b_tiles = a_tiles + STAGES * A::SIZE;

    int down = (m + BM - 1) / BM, across = (n + BN - 1) / BN;
    long long tiles = (long long)down * across;
    long long batch = blockIdx.x / tiles;
    int i, j;
    place_of(blockIdx.x % tiles, down, across, i, j);

    A left({a + batch * a_batch, a_along, m}, i * BM);
    B right({b + batch * b_batch, b_along, n}, j * BN);
    int row, column;
    lane_place<WM, WN, WARPS_N, LANES_M, 4>(row, column);

    int rounds = (k + BK - 1) / BK;
    int first = k - (rounds - 1) * BK;
    left.template send<false>(a_tiles, first);
    right.template send<false>(b_tiles, first);
    kw::cp_async_commit();
#pragma unroll
    for (int stage = 1; stage < STAGES - 1; ++stage) {
        if (stage < rounds) {
            left.template send<true>(a_tiles + stage * A::SIZE, BK);
            right.template send<true>(b_tiles + stage * B::SIZE, BK);
        }
        kw::cp_async_commit();
    }
    kw::cp_async_wait<STAGES - 2>();
    __syncthreads();

    // The values of the next step are fetched while those of this one are used.
    float sums[TM][TN] = {};
    float x[2][TM], y[2][TN];
    int now = 0, next = STAGES - 1;
    fetch<TM, LANES_M>(x[0], a_tiles + row);
    fetch<TN, LANES_N>(y[0], b_tiles + column);
    for (int round = 1; round <= rounds; ++round) {
        if (round + STAGES - 2 < rounds) {
            left.template send<true>(a_tiles + next * A::SIZE, BK);
            right.template send<true>(b_tiles + next * B::SIZE, BK);
        }
        kw::cp_async_commit();
        next = next == STAGES - 1 ? 0 : next + 1;
#pragma unroll
        for (int step = 0; step < BK; ++step) {
            if (step == BK - 1 && round < rounds) {
                now = now == STAGES - 1 ? 0 : now + 1;
                kw::cp_async_wait<STAGES - 2>();
                __syncthreads();
            }
            if (step < BK - 1 || round < rounds) {
                int to = (step + 1) % BK;
                fetch<TM, LANES_M>(
                    x[(step + 1) % 2],
                    a_tiles + now * A::SIZE + to * A::PITCH + row);
                fetch<TN, LANES_N>(
                    y[(step + 1) % 2],
                    b_tiles + now * B::SIZE + to * B::PITCH + column);
            }
            multiply(sums, x[step % 2], y[step % 2]);
        }
    }

    c += batch * m * n;
    write<TM, TN, LANES_M, WIDE>(sums, c, m, n, i * BM + row,
                                 j * BN + column);
}
