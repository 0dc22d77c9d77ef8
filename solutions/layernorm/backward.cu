// Gradients of layer norm, RMSNorm and layer norm + ReLU.
//
//     h  = (x - mean) * rstd,  g = dy * weight
//     dx = rstd * (g - mean(g) - h * mean(g * h))
//     dweight = sum over rows of dy * h,  dbias = sum over rows of dy
//
// x and dy are read once and dx is written once. The blocks are few and stay: a
// thread keeps its columns over all rows of its block, and their sums for
// dweight and dbias in registers. Each block leaves one row of partial sums;
// add_partials adds those, always in the same order.
//
// STAGES rows a group are on their way at any time, by asynchronous copies into
// shared memory: each thread fetches what it will itself use, so that no barrier
// is needed. With STAGES = 0 rows are loaded when they are due (any chip, any
// alignment). Without SUMS it makes dx alone: for rows whose sums do not fit.
template <typename T, int WIDTH, int GROUP, int GROUPS, int PACKS,
          int STAGES, int BLOCKS, bool FULL, bool SUMS, bool RMS,
          bool RELU>
__global__ void __launch_bounds__(GROUP* GROUPS, BLOCKS)
    norm_backward(const T* __restrict__ x, const T* __restrict__ dy,
                  const T* __restrict__ weight, const T* __restrict__ bias,
                  const wide_t<T>* __restrict__ stats, T* __restrict__ dx,
                  wide_t<T>* __restrict__ dweight,
                  wide_t<T>* __restrict__ dbias, long long rows,
                  int columns) {
    using S = wide_t<T>;
    using P = Pack<T, WIDTH>;
    constexpr int slots = STAGES > 0 ? STAGES : 1;
    extern __shared__ __align__(16) unsigned char dynamic[];
    __shared__ Two<S> room[2][32];
    P(*ring)
    [2][PACKS][GROUPS * GROUP] =
        reinterpret_cast<P(*)[2][PACKS][GROUPS * GROUP]>(dynamic);
    const int thread = threadIdx.y * GROUP + threadIdx.x;
    const int packs = columns / WIDTH;
    const long long stride = static_cast<long long>(gridDim.x) * GROUPS;
    const long long begin =
        static_cast<long long>(blockIdx.x) * GROUPS + threadIdx.y;

    // FULL: every thread has PACKS packs, and nobody needs to ask.
    auto mine = [&](int k) {
        return FULL || threadIdx.x + k * GROUP < packs;
    };

    auto fetch = [&](long long row, int slot) {
        if (row < rows) {
#pragma unroll
            for (int k = 0; k < PACKS; ++k) {
                // Zeros where there is no pack: they add nothing to any sum.
                const bool there = mine(k);
                const int pack = there ? threadIdx.x + k * GROUP : 0;
                const long long at = row * columns + pack * WIDTH;
                kw::cp_async<16>(&ring[slot][0][k][thread], x + at, there);
                kw::cp_async<16>(&ring[slot][1][k][thread], dy + at,
                                 there);
            }
        }
        kw::cp_async_commit();  // one group a row, an empty one behind the last
    };

    S sum_w[PACKS][WIDTH] = {}, sum_b[PACKS][WIDTH] = {};
    P w[PACKS] = {};  // as it is in memory: widened again for each row
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
        if (mine(k)) {
            w[k] =
                load_or<T, WIDTH>(weight, threadIdx.x + k * GROUP, 1.0f);
        }
    }
    if constexpr (STAGES > 0) {
#pragma unroll
        for (int s = 0; s < STAGES; ++s) fetch(begin + s * stride, s);
    }
    // The statistics of a row are asked for one row before they are needed.
    S next_mean = 0, next_low = 0, next_rstd = 0;
    auto ask = [&](long long row) {
        if (row >= rows) return;
        if constexpr (!RMS) {
            next_mean = stats[row];
            next_low = stats[rows + row];
        }
        next_rstd = stats[2 * rows + row];
    };
    ask(begin);
    const S share = S(1) / S(columns);
    int slot = 0, turn = 0;
    for (long long row = begin; row < rows; row += stride) {
        const S mean = next_mean, rstd = next_rstd;
        const S shift = -next_low * rstd;
        ask(row + stride);
        P px[PACKS] = {}, pd[PACKS] = {};
        if constexpr (STAGES > 0) kw::cp_async_wait<slots - 1>();
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            const int pack = threadIdx.x + k * GROUP;
            if constexpr (STAGES > 0) {
                px[k] = ring[slot][0][k][thread];
                pd[k] = ring[slot][1][k][thread];
            } else if (mine(k)) {
                px[k] = load_once<T, WIDTH>(x + row * columns, pack);
                pd[k] = load_once<T, WIDTH>(dy + row * columns, pack);
            }
        }
        if constexpr (STAGES > 0) {
            fetch(row + STAGES * stride, slot);
            slot = slot + 1 == STAGES ? 0 : slot + 1;
        }
        S h[PACKS][WIDTH], g[PACKS][WIDTH];
        Two<S> sum{0, 0};
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            S wk[WIDTH], b[WIDTH] = {};
            widen<T, WIDTH>(px[k], h[k]);
            widen<T, WIDTH>(pd[k], g[k]);
            widen<T, WIDTH>(w[k], wk);
            if constexpr (RELU) {
                const int pack = threadIdx.x + k * GROUP;
                if (mine(k)) {
                    widen<T, WIDTH>(load_or<T, WIDTH>(bias, pack, 0.0f),
                                    b);
                }
            }
#pragma unroll
            for (int j = 0; j < WIDTH; ++j) {
                h[k][j] = (h[k][j] - mean) * rstd + shift;
                if constexpr (RELU) {
                    // Was the output positive, as it was rounded?
                    const S y = h[k][j] * wk[j] + b[j];
                    if (S(T(y)) <= S(0)) g[k][j] = 0;
                }
                if constexpr (SUMS) sum_w[k][j] += g[k][j] * h[k][j];
                if constexpr (SUMS && !RMS) sum_b[k][j] += g[k][j];
                g[k][j] *= wk[j];
                if constexpr (!RMS) sum.a += g[k][j];
                sum.b += g[k][j] * h[k][j];
            }
        }
        sum = group_sum<GROUP>(sum, room, turn);
        turn = 1 - turn;
        const S all_g = sum.a * share, all_gh = sum.b * share;
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            if (!mine(k)) continue;
#pragma unroll
            for (int j = 0; j < WIDTH; ++j) {
                // The difference first: it is small, and is scaled after.
                if constexpr (!RMS) g[k][j] -= all_g;
                g[k][j] = (g[k][j] - h[k][j] * all_gh) * rstd;
            }
            const int pack = threadIdx.x + k * GROUP;
            store_once<T, WIDTH>(dx + row * columns, pack,
                                 narrow<T, WIDTH>(g[k]));
        }
    }
    if constexpr (!SUMS) return;
    // The groups of a block add up their sums, one after another, in a room of
    // the row's length: no longer needed for rows on their way.
    S* total = reinterpret_cast<S*>(dynamic);
    auto leave = [&](const S(&sums)[PACKS][WIDTH], S* to) {
        if (to == nullptr) return;
        to += static_cast<long long>(blockIdx.x) * columns;
        for (int turn = 0; turn < GROUPS; ++turn) {
            if constexpr (GROUPS > 1) __syncthreads();
            if (threadIdx.y != turn) continue;
#pragma unroll
            for (int k = 0; k < PACKS; ++k) {
                if (!mine(k)) continue;
                const int pack = threadIdx.x + k * GROUP;
#pragma unroll
                for (int j = 0; j < WIDTH; ++j) {
                    const int i = pack * WIDTH + j;
                    S value = sums[k][j];
                    if (turn > 0) value += total[i];
                    if (turn + 1 < GROUPS) {
                        total[i] = value;
                    } else {
                        to[i] = value;
                    }
                }
            }
        }
    };
    leave(sum_w, dweight);
    if constexpr (!RMS) leave(sum_b, dbias);
}

// Rows of any length: dx alone, a block a row; what is read twice comes with
// luck from a cache the second time.
template <typename T, bool RMS, bool RELU>
__global__ void __launch_bounds__(512)
    norm_backward_streamed(const T* __restrict__ x,
                           const T* __restrict__ dy,
                           const T* __restrict__ weight,
                           const T* __restrict__ bias,
                           const wide_t<T>* __restrict__ stats,
                           T* __restrict__ dx, long long rows,
                           long long columns) {
    using S = wide_t<T>;
    __shared__ Two<S> room[2][32];
    const long long row = blockIdx.x;
    x += row * columns;
    dy += row * columns;
    dx += row * columns;
    const S mean = RMS ? S(0) : stats[row];
    const S low = RMS ? S(0) : stats[rows + row];
    const S rstd = stats[2 * rows + row];
    Two<S> sum{0, 0};
    S h, g;
    auto at = [&](long long i) {
        const S w = weight != nullptr ? S(weight[i]) : S(1);
        h = ((S(x[i]) - mean) - low) * rstd;
        g = S(dy[i]) * w;
        if constexpr (RELU) {
            S y = h * w;
            if (bias != nullptr) y += S(bias[i]);
            if (S(T(y)) <= S(0)) g = 0;
        }
    };
    for (long long i = threadIdx.x; i < columns; i += 512) {
        at(i);
        sum.a += RMS ? S(0) : g;
        sum.b += g * h;
    }
    sum = group_sum<512>(sum, room, 0);
    const S all_g = sum.a / S(columns), all_gh = sum.b / S(columns);
    for (long long i = threadIdx.x; i < columns; i += 512) {
        at(i);
        dx[i] = T(rstd * (g - all_g - h * all_gh));
    }
}

// The partial sums of dweight and dbias for rows of any length: a thread a
// column, and blockIdx.y says which rows.
template <typename T, bool RMS, bool RELU>
__global__ void __launch_bounds__(256)
    norm_partials(const T* __restrict__ x, const T* __restrict__ dy,
                  const T* __restrict__ weight, const T* __restrict__ bias,
                  const wide_t<T>* __restrict__ stats,
                  wide_t<T>* __restrict__ dweight,
                  wide_t<T>* __restrict__ dbias, long long rows,
                  long long columns) {
    using S = wide_t<T>;
    const long long i = blockIdx.x * 256LL + threadIdx.x;
    if (i >= columns) return;
    const S w = weight != nullptr ? S(weight[i]) : S(1);
    const S b = bias != nullptr ? S(bias[i]) : S(0);
    S sum_w = 0, sum_b = 0;
    for (long long row = blockIdx.y; row < rows; row += gridDim.y) {
        const S mean = RMS ? S(0) : stats[row];
        const S low = RMS ? S(0) : stats[rows + row];
        const S rstd = stats[2 * rows + row];
        const S h = ((S(x[row * columns + i]) - mean) - low) * rstd;
        S d = S(dy[row * columns + i]);
        if (RELU && S(T(h * w + b)) <= S(0)) d = 0;
        sum_w += d * h;
        sum_b += d;
    }
    if (dweight != nullptr) dweight[blockIdx.y * columns + i] = sum_w;
    if (dbias != nullptr) dbias[blockIdx.y * columns + i] = sum_b;
}

// The second stage: adds the partial sums of each column, 32 columns a block and
// 32 threads a column. blockIdx.y says which of two gradients.
template <typename T>
__global__ void __launch_bounds__(1024)
    add_partials(const wide_t<T>* __restrict__ first_partials,
                 const wide_t<T>* __restrict__ second_partials,
                 T* __restrict__ first, T* __restrict__ second,
                 int partials, long long columns) {
    using S = wide_t<T>;
    __shared__ S tile[32][33];
    const S* from = blockIdx.y == 0 ? first_partials : second_partials;
    T* to = blockIdx.y == 0 ? first : second;
    const long long column = blockIdx.x * 32LL + threadIdx.x;
    S sum = 0;
    if (column < columns) {
        for (int p = threadIdx.y; p < partials; p += 32) {
            sum += from[p * columns + column];
        }
    }
    tile[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    // Turned: a warp now holds one column.
    sum = warp_sum<32>(Two<S>{tile[threadIdx.x][threadIdx.y], 0}).a;
    const long long mine = blockIdx.x * 32LL + threadIdx.y;
    if (threadIdx.x == 0 && mine < columns) to[mine] = T(sum);
}
