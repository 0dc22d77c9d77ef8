// What forward and backward share: packs, and sums over the threads of a row.
//
// A row belongs to a group of threads: one warp, or a whole block. Its numbers
// are widened to float (double stays double), and rounded once at the end.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <kw/cp_async.cuh>

template <typename T>
struct Wide {
    using type = float;
};
template <>
struct Wide<double> {
    using type = double;
};
template <typename T>
using wide_t = typename Wide<T>::type;

// What one instruction moves, as bits: the compiler then keeps it in whole
// registers, where a struct of 16-bit numbers is taken apart and put together.
template <int BYTES>
struct Bits;
template <>
struct Bits<16> {
    using type = uint4;
};
template <>
struct Bits<8> {
    using type = unsigned long long;
};
template <>
struct Bits<4> {
    using type = unsigned int;
};
template <>
struct Bits<2> {
    using type = unsigned short;
};

template <typename T, int WIDTH>
using Pack = typename Bits<sizeof(T) * WIDTH>::type;

// 16-bit numbers are widened and rounded two at a time: an instruction each way,
// where one by one the compiler needs twice as many.
__device__ inline float2 widen_pair(unsigned int bits, __nv_bfloat16) {
    // A bf16 is the upper half of a float.
    return {__uint_as_float(bits << 16),
            __uint_as_float(bits & 0xffff0000u)};
}

__device__ inline float2 widen_pair(unsigned int bits, __half) {
    __half2 pair;
    memcpy(&pair, &bits, 4);
    return __half22float2(pair);
}

__device__ inline unsigned int narrow_pair(float a, float b,
                                           __nv_bfloat16) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
    unsigned int bits;
    memcpy(&bits, &pair, 4);
    return bits;
}

__device__ inline unsigned int narrow_pair(float a, float b, __half) {
    const __half2 pair = __floats2half2_rn(a, b);
    unsigned int bits;
    memcpy(&bits, &pair, 4);
    return bits;
}

template <typename T, int WIDTH>
__device__ void widen(Pack<T, WIDTH> pack, wide_t<T> (&to)[WIDTH]) {
    if constexpr (sizeof(T) == 2 && WIDTH % 2 == 0) {
        unsigned int words[WIDTH / 2];
        memcpy(words, &pack, sizeof(pack));
#pragma unroll
        for (int j = 0; j < WIDTH / 2; ++j) {
            const float2 pair = widen_pair(words[j], T());
            to[2 * j] = pair.x;
            to[2 * j + 1] = pair.y;
        }
    } else {
        T lanes[WIDTH];
        memcpy(lanes, &pack, sizeof(pack));
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) to[j] = wide_t<T>(lanes[j]);
    }
}

template <typename T, int WIDTH>
__device__ Pack<T, WIDTH> narrow(const wide_t<T> (&from)[WIDTH]) {
    Pack<T, WIDTH> pack;
    if constexpr (sizeof(T) == 2 && WIDTH % 2 == 0) {
        unsigned int words[WIDTH / 2];
#pragma unroll
        for (int j = 0; j < WIDTH / 2; ++j) {
            words[j] = narrow_pair(from[2 * j], from[2 * j + 1], T());
        }
        memcpy(&pack, words, sizeof(pack));
    } else {
        T lanes[WIDTH];
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) lanes[j] = T(from[j]);
        memcpy(&pack, lanes, sizeof(pack));
    }
    return pack;
}

// A pack of the weight or the bias, or of what stands for an absent one.
template <typename T, int WIDTH>
__device__ Pack<T, WIDTH> load_or(const T* data, int pack, float absent) {
    using P = Pack<T, WIDTH>;
    if (data != nullptr) return reinterpret_cast<const P*>(data)[pack];
    wide_t<T> value[WIDTH];
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) value[j] = absent;
    return narrow<T, WIDTH>(value);
}

// What is read or written once, with a hint that nobody needs it soon: it
// leaves the caches to the weights.
template <typename T, int WIDTH>
__device__ Pack<T, WIDTH> load_once(const T* data, int pack) {
    return __ldcs(reinterpret_cast<const Pack<T, WIDTH>*>(data) + pack);
}

template <typename T, int WIDTH>
__device__ void store_once(T* data, int pack, Pack<T, WIDTH> value) {
    __stcs(reinterpret_cast<Pack<T, WIDTH>*>(data) + pack, value);
}

template <typename S>
struct Two {
    S a, b;
};

template <int LANES, typename S>
__device__ Two<S> warp_sum(Two<S> sum) {
#pragma unroll
    for (int offset = LANES / 2; offset > 0; offset /= 2) {
        sum.a += __shfl_xor_sync(0xffffffff, sum.a, offset);
        sum.b += __shfl_xor_sync(0xffffffff, sum.b, offset);
    }
    return sum;
}

// Adds over a group of GROUP threads; every one of them gets the sums. A block
// meets at one barrier: sums that follow each other alternate between two
// rooms, so that nobody overwrites what another still reads.
template <int GROUP, typename S>
__device__ Two<S> group_sum(Two<S> sum, Two<S> (*room)[32], int turn) {
    sum = warp_sum<32>(sum);
    if constexpr (GROUP > 32) {
        constexpr int warps = GROUP / 32;
        if (threadIdx.x % 32 == 0) room[turn][threadIdx.x / 32] = sum;
        __syncthreads();
        // Each warp adds the warps' sums for itself, all in one order.
        sum = warp_sum<warps>(room[turn][threadIdx.x % warps]);
    }
    return sum;
}
