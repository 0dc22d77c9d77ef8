// Layer norm, RMSNorm and layer norm + ReLU for rows that fit the registers of
// their group: each element is read once and written once.
//
//     y = (x - mean) / sqrt(variance + eps) * weight + bias
//
// The mean is rounded, and for a row near 10,000 that alone is an error of
// 0.0005. So the second sweep sums the deviations from it too: they say how far
// off it was. stats keeps, for the backward pass, (rows) each of: the mean, that
// correction, 1 / deviation; RMSNorm needs the last alone.
template <typename T, int WIDTH, int GROUP, int GROUPS, int PACKS,
          bool FULL, bool RMS, bool RELU>
__global__ void __launch_bounds__(GROUP* GROUPS)
    norm_rows(const T* __restrict__ x, const T* __restrict__ weight,
              const T* __restrict__ bias, T* __restrict__ y,
              wide_t<T>* __restrict__ stats, long long rows, int columns,
              wide_t<T> eps) {
    using S = wide_t<T>;
    __shared__ Two<S> room[2][32];
    const long long row =
        static_cast<long long>(blockIdx.x) * GROUPS + threadIdx.y;
    if (row >= rows) return;  // never where a block is one group
    const int packs = columns / WIDTH;
    x += row * columns;
    y += row * columns;

    // FULL: every thread has PACKS packs, and nobody needs to ask.
    auto mine = [&](int k) {
        return FULL || threadIdx.x + k * GROUP < packs;
    };

    const S share = S(1) / S(columns);
    S v[PACKS][WIDTH];
    Two<S> sum{0, 0};
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
        Pack<T, WIDTH> in = {};
        if (mine(k)) in = load_once<T, WIDTH>(x, threadIdx.x + k * GROUP);
        widen<T, WIDTH>(in, v[k]);
    }
    S mean = 0;
    if constexpr (!RMS) {
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
#pragma unroll
            for (int j = 0; j < WIDTH; ++j) sum.a += v[k][j];
        }
        mean = group_sum<GROUP>(sum, room, 0).a * share;
        sum = {0, 0};
    }
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
        if (!mine(k)) continue;
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) {
            if constexpr (!RMS) {
                v[k][j] -= mean;
                sum.a += v[k][j];
            }
            sum.b += v[k][j] * v[k][j];
        }
    }
    sum = group_sum<GROUP>(sum, room, 1);
    const S low = sum.a * share;
    const S rstd = rsqrt(sum.b * share - low * low + eps);
    if (stats != nullptr && threadIdx.x == 0) {
        stats[row] = mean;
        stats[rows + row] = low;
        stats[2 * rows + row] = rstd;
    }
    const S shift = -low * rstd;
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
        if (!mine(k)) continue;
        const int pack = threadIdx.x + k * GROUP;
        S w[WIDTH], b[WIDTH];
        widen<T, WIDTH>(load_or<T, WIDTH>(weight, pack, 1.0f), w);
        if constexpr (!RMS)
            widen<T, WIDTH>(load_or<T, WIDTH>(bias, pack, 0.0f), b);
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) {
            if constexpr (RMS) {
                v[k][j] = v[k][j] * rstd * w[j];
            } else {
                v[k][j] = (v[k][j] * rstd + shift) * w[j] + b[j];
            }
            // Not max(), which would turn a NaN into 0.
            if constexpr (RELU) v[k][j] = v[k][j] < S(0) ? S(0) : v[k][j];
        }
        store_once<T, WIDTH>(y, pack, narrow<T, WIDTH>(v[k]));
    }
}

// Rows of any length, a block each: read twice, the second time with luck from
// a cache. One pass finds the statistics by Welford's method, on what is left of
// x after the row's first element is taken away: that keeps the digits of rows
// whose mean is far from zero, and Welford's those of rows that begin oddly.
template <typename S>
struct Summary {
    S count, mean, m2;
};

template <typename S>
__device__ Summary<S> merge(Summary<S> a, Summary<S> b) {
    const S count = a.count + b.count;
    if (count == 0) return a;
    const S delta = b.mean - a.mean, share = b.count / count;
    return {count, a.mean + delta * share,
            a.m2 + b.m2 + delta * delta * a.count * share};
}

template <int LANES, typename S>
__device__ Summary<S> warp_merge(Summary<S> mine) {
#pragma unroll
    for (int offset = 1; offset < LANES; offset *= 2) {
        const Summary<S> other{
            __shfl_xor_sync(0xffffffff, mine.count, offset),
            __shfl_xor_sync(0xffffffff, mine.mean, offset),
            __shfl_xor_sync(0xffffffff, mine.m2, offset)};
        // The lower lane's comes first for both, so that both get the same.
        mine =
            threadIdx.x & offset ? merge(other, mine) : merge(mine, other);
    }
    return mine;
}

template <typename T, bool RMS, bool RELU>
__global__ void __launch_bounds__(512)
    norm_streamed(const T* __restrict__ x, const T* __restrict__ weight,
                  const T* __restrict__ bias, T* __restrict__ y,
                  wide_t<T>* __restrict__ stats, long long rows,
                  long long columns, wide_t<T> eps) {
    using S = wide_t<T>;
    __shared__ Summary<S> room[16];
    const long long row = blockIdx.x;
    x += row * columns;
    y += row * columns;
    const S first = RMS ? S(0) : S(x[0]);
    Summary<S> mine{0, 0, 0};
    for (long long i = threadIdx.x; i < columns; i += 512) {
        const S value = S(x[i]) - first;
        mine.count += 1;
        if constexpr (RMS) {
            mine.m2 += value * value;
        } else {
            const S delta = value - mine.mean;
            mine.mean += delta / mine.count;
            mine.m2 += delta * (value - mine.mean);
        }
    }
    mine = warp_merge<32>(mine);
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = mine;
    __syncthreads();
    mine = warp_merge<16>(room[threadIdx.x % 16]);
    const S low = mine.mean;
    const S rstd = rsqrt(mine.m2 / S(columns) + eps);
    if (stats != nullptr && threadIdx.x == 0) {
        stats[row] = first;
        stats[rows + row] = low;
        stats[2 * rows + row] = rstd;
    }
    for (long long i = threadIdx.x; i < columns; i += 512) {
        S value = ((S(x[i]) - first) - low) * rstd;
        if (weight != nullptr) value *= S(weight[i]);
        if (bias != nullptr) value += S(bias[i]);
        if constexpr (RELU) value = value < S(0) ? S(0) : value;
        y[i] = T(value);
    }
}
