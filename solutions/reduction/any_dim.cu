// The package's kernels: sums over any dimension, any dtype, 64-bit indices.
//
// A contiguous tensor is (outer, length, inner), and `length` is summed over.
// Half types are widened, added in float and rounded once at the end.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

template <typename T>
struct Kind {
    using wide = long long;  // integers: exact, modulo 2^64
    using result = long long;
};
template <>
struct Kind<float> {
    using wide = float;
    using result = float;
};
template <>
struct Kind<double> {
    using wide = double;
    using result = double;
};
template <>
struct Kind<__half> {
    using wide = float;
    using result = __half;
};
template <>
struct Kind<__nv_bfloat16> {
    using wide = float;
    using result = __nv_bfloat16;
};
template <typename T>
using wide_t = typename Kind<T>::wide;
template <typename T>
using result_t = typename Kind<T>::result;

// What an element adds, what the sum is divided by, and the slope of a term.
struct Total {
    static constexpr bool mean = false;
    template <typename A>
    static __device__ A term(A x) {
        return x;
    }
};
struct Squares {
    static constexpr bool mean = false;
    template <typename A>
    static __device__ A term(A x) {
        return x * x;
    }
    template <typename A>
    static __device__ A slope(A x) {
        return x + x;
    }
};
struct Magnitudes {
    static constexpr bool mean = true;
    template <typename A>
    static __device__ A term(A x) {
        return x < A(0) ? -x : x;
    }
    // As torch.sgn has it: 0 at 0 and at NaN.
    template <typename A>
    static __device__ A slope(A x) {
        return A(x > A(0)) - A(x < A(0));
    }
};

// The alignment is what lets the compiler move a pack with one instruction.
template <typename T>
struct alignas(16) Pack {
    static constexpr int width = 16 / sizeof(T);
    T lane[width];
};

// Neighbours first: a tree in registers, short and with small errors.
template <typename Op, typename T>
__device__ wide_t<T> sum_of(const Pack<T>& pack) {
    wide_t<T> part[Pack<T>::width];
#pragma unroll
    for (int k = 0; k < Pack<T>::width; ++k) {
        part[k] = Op::term(wide_t<T>(pack.lane[k]));
    }
#pragma unroll
    for (int step = 1; step < Pack<T>::width; step *= 2) {
#pragma unroll
        for (int k = 0; k + step < Pack<T>::width; k += 2 * step) {
            part[k] += part[k + step];
        }
    }
    return part[0];
}

// The sum over `lanes` neighbouring lanes, a power of two, in the first one.
template <int lanes, typename A>
__device__ A sum_lanes(A value) {
#pragma unroll
    for (int offset = lanes / 2; offset > 0; offset /= 2) {
        value += __shfl_down_sync(0xffffffff, value, offset, lanes);
    }
    return value;
}

// The sum over a block of whole warps, in thread 0.
template <typename A>
__device__ A sum_block(A value) {
    __shared__ A part[32];
    const int warps = blockDim.x / 32;
    value = sum_lanes<32>(value);
    __syncthreads();  // of an earlier sum, all have read
    if (threadIdx.x % 32 == 0) {
        part[threadIdx.x / 32] = value;
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        value = threadIdx.x < warps ? part[threadIdx.x] : A(0);
        value = sum_lanes<32>(value);
    }
    return value;
}

template <typename T, typename Op>
__device__ result_t<T> finish(wide_t<T> sum, long long length) {
    return result_t<T>(Op::mean ? sum / wide_t<T>(length) : sum);
}

// Tell whether all other blocks of this group have come here before. What they
// wrote before they came can be read then.
__device__ bool is_last(unsigned int* arrived, int group_size) {
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0 && threadIdx.y == 0) {
        last = atomicAdd(arrived, 1u) == group_size - 1;
        if (last) {
            *arrived = 0;  // for the next launch
        }
    }
    __syncthreads();
    if (last) {
        __threadfence();
    }
    return last;
}

template <typename Op, typename T>
__device__ wide_t<T> sum_of(const T& element) {
    return Op::term(wide_t<T>(element));
}

// One thread's items: every `step`-th from `first` on. It asks for several
// before it adds any; past the end it has zeros, which add nothing to any sum.
template <typename Op, int loads, typename A, typename Item,
          typename Index>
__device__ A sum_items(const Item* items, Index count, int first,
                       int step) {
    A sum[loads] = {};
    for (Index i = first; i < count; i += loads * step) {
        Item on_the_way[loads];
#pragma unroll
        for (int k = 0; k < loads; ++k) {
            const Index j = i + k * step;
            on_the_way[k] = j < count ? items[j] : Item{};
        }
#pragma unroll
        for (int k = 0; k < loads; ++k) {
            sum[k] += sum_of<Op>(on_the_way[k]);
        }
    }
#pragma unroll
    for (int apart = 1; apart < loads; apart *= 2) {
#pragma unroll
        for (int k = 0; k + apart < loads; k += 2 * apart) {
            sum[k] += sum[k + apart];
        }
    }
    return sum[0];
}

// One thread's share of `count` neighbours, which a block adds up together.
// The elements before the first multiple of 16 bytes, and those behind the
// last, are read one by one.
template <typename T, typename Op, int loads>
__device__ wide_t<T> sum_share(const T* __restrict__ x, long long count) {
    constexpr int width = Pack<T>::width;
    const int skew =
        reinterpret_cast<unsigned long long>(x) / sizeof(T) % width;
    const long long ahead = skew == 0 ? 0 : width - skew;
    const long long head = ahead < count ? ahead : count;
    const long long packs = (count - head) / width;
    const long long tail = head + packs * width + threadIdx.x;
    wide_t<T> sum = 0;
    if (threadIdx.x < head) {
        sum = sum_of<Op>(x[threadIdx.x]);
    }
    if (tail < count) {
        sum += sum_of<Op>(x[tail]);
    }
    return sum + sum_items<Op, loads, wide_t<T>>(
                     reinterpret_cast<const Pack<T>*>(x + head), packs,
                     threadIdx.x, blockDim.x);
}

// Long rows: a block for each piece of a row. With more than one piece the
// last block of a row adds up what the others left, in the order of the pieces.
template <typename T, typename Op, int loads>
__global__ void sum_pieces(const T* __restrict__ x, result_t<T>* out,
                           wide_t<T>* partials, unsigned int* arrived,
                           long long length, long long piece, int pieces) {
    const long long row = blockIdx.x / pieces;
    const long long begin = blockIdx.x % pieces * piece;
    const long long left = length - begin;
    wide_t<T> sum = sum_share<T, Op, loads>(x + row * length + begin,
                                            piece < left ? piece : left);
    sum = sum_block(sum);
    if (pieces > 1) {
        wide_t<T>* mine = partials + row * pieces;
        if (threadIdx.x == 0) {
            mine[blockIdx.x % pieces] = sum;
        }
        if (!is_last(arrived + row, pieces)) {
            return;
        }
        sum = 0;
        for (int p = threadIdx.x; p < pieces; p += blockDim.x) {
            sum += __ldcg(mine + p);
        }
        sum = sum_block(sum);
    }
    if (threadIdx.x == 0) {
        out[row] = finish<T, Op>(sum, length);
    }
}

// Short rows: `lanes` neighbouring lanes a row, so that a warp has several.
// In packs where rows are whole packs, else element by element.
template <typename T, typename Op, int lanes, bool packed>
__global__ void sum_short(const T* __restrict__ x, result_t<T>* out,
                          long long rows, int length) {
    const int in_block = blockDim.x / lanes;
    const long long row = static_cast<long long>(blockIdx.x) * in_block +
                          threadIdx.x / lanes;
    const int lane = threadIdx.x % lanes;
    wide_t<T> sum = 0;
    if (row < rows) {
        const T* mine = x + row * length;
        if (packed) {
            sum = sum_items<Op, 4, wide_t<T>>(
                reinterpret_cast<const Pack<T>*>(mine),
                length / Pack<T>::width, lane, lanes);
        } else {
            sum = sum_items<Op, 4, wide_t<T>>(mine, length, lane, lanes);
        }
    }
    sum = sum_lanes<lanes>(sum);  // by all lanes of the warp, rows or none
    if (row < rows && lane == 0) {
        out[row] = finish<T, Op>(sum, length);
    }
}

// Any other dimension: neighbours in memory belong to different sums, so each
// thread has `width` columns of its own, and the rows of the block share the
// length. blockDim = (columns / width, rows).
// Eight columns a thread do not fit into 32 registers, so such blocks come alone;
// four loads of 16 bytes a thread are 64 KB on their way, more than are needed.
template <typename T, typename Op, int width>
__global__ void __launch_bounds__(1024, width < 8 ? 2 : 1)
    sum_columns(const T* __restrict__ x, result_t<T>* out,
                wide_t<T>* partials, unsigned int* arrived,
                long long length, long long inner, long long piece,
                int pieces, int tiles) {
    struct alignas(width * sizeof(T)) Columns {
        T lane[width];
    };
    extern __shared__ double room[];  // rows x columns sums
    wide_t<T>* part = reinterpret_cast<wide_t<T>*>(room);
    const long long group = blockIdx.x / pieces;
    const long long outer = group / tiles;
    const long long first =
        (group % tiles * blockDim.x + threadIdx.x) * width;
    const long long begin = blockIdx.x % pieces * piece;
    const long long end = begin + piece < length ? begin + piece : length;
    const bool inside = first < inner;
    wide_t<T> sum[width] = {};
    if (inside) {
        const T* column = x + outer * length * inner + first;
#pragma unroll 4
        for (long long r = begin + threadIdx.y; r < end; r += blockDim.y) {
            const Columns some =
                *reinterpret_cast<const Columns*>(column + r * inner);
#pragma unroll
            for (int k = 0; k < width; ++k) {
                sum[k] += Op::term(wide_t<T>(some.lane[k]));
            }
        }
    }
    for (int halves = 0; halves < 2; ++halves) {
        const int columns = blockDim.x * width;
        wide_t<T>* mine = part + threadIdx.y * columns + threadIdx.x;
        for (int k = 0; k < width; ++k) {
            mine[k * blockDim.x] = sum[k];
        }
        __syncthreads();
        for (int rows = blockDim.y / 2; rows > 0; rows /= 2) {
            if (threadIdx.y < rows) {
                for (int k = 0; k < width; ++k) {
                    sum[k] += mine[rows * columns + k * blockDim.x];
                    mine[k * blockDim.x] = sum[k];
                }
            }
            __syncthreads();
        }
        if (pieces == 1 || halves == 1) {
            break;
        }
        // Partial sums lie piece by piece, each a row of `inner` for an outer.
        wide_t<T>* all = partials + outer * pieces * inner;
        if (threadIdx.y == 0 && inside) {
            for (int k = 0; k < width; ++k) {
                all[blockIdx.x % pieces * inner + first + k] = sum[k];
            }
        }
        if (!is_last(arrived + group, pieces)) {
            return;
        }
        for (int k = 0; k < width; ++k) {
            sum[k] = 0;
            for (int p = threadIdx.y; inside && p < pieces;
                 p += blockDim.y) {
                sum[k] += __ldcg(all + p * inner + first + k);
            }
        }
    }
    if (threadIdx.y == 0 && inside) {
        for (int k = 0; k < width; ++k) {
            out[outer * inner + first + k] = finish<T, Op>(sum[k], length);
        }
    }
}

// Short sums of which many lie side by side in memory: a thread for each.
template <typename T, typename Op>
__global__ void sum_each(const T* __restrict__ x, result_t<T>* out,
                         long long sums, long long length,
                         long long inner) {
    const long long i =
        static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= sums) {
        return;
    }
    const T* mine = x + i / inner * length * inner + i % inner;
    wide_t<T> sum = 0;
    for (long long r = 0; r < length; ++r) {
        sum += Op::term(wide_t<T>(mine[r * inner]));
    }
    out[i] = finish<T, Op>(sum, length);
}

// The gradient: each element's slope times what comes back for its sum.
// `width` elements a thread: all of one sum if `same`, else each of its own.
// Index is 32 bits wide where that is enough: it divides.
template <typename T, typename Op, int width, bool same, typename Index>
__global__ void slopes(const T* __restrict__ x, const T* __restrict__ grad,
                       T* __restrict__ out, long long n, long long length,
                       long long inner) {
    struct alignas(width * sizeof(T)) Some {
        T lane[width];
    };
    const long long some =
        static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (some * width >= n) {
        return;
    }
    const Some values = reinterpret_cast<const Some*>(x)[some];
    const Index row = some * width / static_cast<Index>(inner);
    const Index column = some * width - row * static_cast<Index>(inner);
    const Index outer = row / static_cast<Index>(length);
    const T* back = grad + outer * static_cast<Index>(inner) + column;
    wide_t<T> g = wide_t<T>(*back);
    Some made;
#pragma unroll
    for (int k = 0; k < width; ++k) {
        if (!same && k > 0) {
            g = wide_t<T>(back[k]);
        }
        if (Op::mean && (!same || k == 0)) {
            g /= wide_t<T>(length);
        }
        made.lane[k] = T(Op::slope(wide_t<T>(values.lane[k])) * g);
    }
    reinterpret_cast<Some*>(out)[some] = made;
}
