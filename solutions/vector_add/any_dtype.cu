// The package's kernels: every dtype, 64-bit indices, 16 bytes a load.
//
// Half types are widened, computed in float and rounded once, as torch does.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

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

// The alignment is what lets the compiler move a pack with one instruction.
template <typename T>
struct alignas(16) Pack {
    static constexpr int width = 16 / sizeof(T);
    T lane[width];
};

template <typename T>
__device__ Pack<T>& pack_at(T* data, long long pack) {
    return reinterpret_cast<Pack<T>*>(data)[pack];
}

template <typename T>
__device__ const Pack<T>& pack_at(const T* data, long long pack) {
    return reinterpret_cast<const Pack<T>*>(data)[pack];
}

__device__ long long thread_in_grid() {
    // Widened before the product: 2^31 elements are only 8 GB of floats.
    return static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
}

__device__ long long threads_in_grid() {
    return static_cast<long long>(gridDim.x) * blockDim.x;
}

template <typename T>
__device__ T add(T x, T y) {
    return T(wide_t<T>(x) + wide_t<T>(y));
}

template <typename T>
__device__ T axpy(wide_t<T> a, T x, T y) {
    return T(a * wide_t<T>(x) + wide_t<T>(y));
}

// One pack a thread: two 16-byte loads in each of 2,048 threads are 64 KB in
// flight an SM, four times what a float a thread asks for, and a quarter of
// the blocks to start.
template <typename T>
__global__ void packed_add(const T* __restrict__ x,
                           const T* __restrict__ y, T* __restrict__ out,
                           long long n) {
    const long long thread = thread_in_grid();
    const long long packs = n / Pack<T>::width;
    if (thread < packs) {
        Pack<T> sum = pack_at(x, thread);
        const Pack<T> other = pack_at(y, thread);
        for (int k = 0; k < Pack<T>::width; ++k) {
            sum.lane[k] = add(sum.lane[k], other.lane[k]);
        }
        pack_at(out, thread) = sum;
    }
    const long long last = packs * Pack<T>::width + thread;
    if (last < n) out[last] = add(x[last], y[last]);
}

template <typename T>
__global__ void packed_add_one(const T* __restrict__ x,
                               T* __restrict__ out, long long n) {
    const long long thread = thread_in_grid();
    const long long packs = n / Pack<T>::width;
    if (thread < packs) {
        Pack<T> sum = pack_at(x, thread);
        for (int k = 0; k < Pack<T>::width; ++k) {
            sum.lane[k] = add(sum.lane[k], T(1.0f));
        }
        pack_at(out, thread) = sum;
    }
    const long long last = packs * Pack<T>::width + thread;
    if (last < n) out[last] = add(x[last], T(1.0f));
}

template <typename T>
__global__ void packed_saxpy(wide_t<T> a, const T* __restrict__ x,
                             const T* __restrict__ y, T* __restrict__ out,
                             long long n) {
    const long long stride = threads_in_grid();
    const long long packs = n / Pack<T>::width;
    for (long long i = thread_in_grid(); i < packs; i += stride) {
        Pack<T> sum = pack_at(x, i);
        const Pack<T> other = pack_at(y, i);
        for (int k = 0; k < Pack<T>::width; ++k) {
            sum.lane[k] = axpy(a, sum.lane[k], other.lane[k]);
        }
        pack_at(out, i) = sum;
    }
    const long long last = packs * Pack<T>::width + thread_in_grid();
    if (last < n) out[last] = axpy(a, x[last], y[last]);
}

// For addresses that are not multiples of 16 bytes, such as those of x[1:].
template <typename T>
__global__ void scalar_saxpy(wide_t<T> a, const T* __restrict__ x,
                             const T* __restrict__ y, T* __restrict__ out,
                             long long n) {
    const long long stride = threads_in_grid();
    for (long long i = thread_in_grid(); i < n; i += stride) {
        out[i] = axpy(a, x[i], y[i]);
    }
}

template <typename T>
__global__ void scalar_add(const T* __restrict__ x,
                           const T* __restrict__ y, T* __restrict__ out,
                           long long n) {
    const long long i = thread_in_grid();
    if (i < n) out[i] = add(x[i], y[i]);
}

template <typename T>
__global__ void scalar_add_one(const T* __restrict__ x,
                               T* __restrict__ out, long long n) {
    const long long i = thread_in_grid();
    if (i < n) out[i] = add(x[i], T(1.0f));
}
