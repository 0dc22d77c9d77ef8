// Asynchronous copies from global to shared memory (compute capability 8.0):
// the bytes travel without passing through registers, and have arrived after the wait.
//
//   kw::cp_async<16>(&tile[i], &x[j]);       // 4, 8 or 16 bytes, both ends so aligned
//   kw::cp_async<16>(&tile[i], &x[j], j < n) // zeros where the condition is false
//   kw::cp_async_first<16>(&tile[i], &x[j], 6)  // the first 6 bytes, then zeros
//   kw::cp_async_commit();                   // what was issued so far is one group
//   kw::cp_async_wait<0>();                  // all but the newest 0 groups are there
//
// A wait is the thread's own: others see its bytes after a __syncthreads() behind it.
// A chip of compute capability 7.5 has no such instruction: there each copy is a load
// and a store, right and not asynchronous.
#pragma once

#include <kw/shared.cuh>

namespace kw {

#ifdef __CUDACC__

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800

template <int Bytes>
__device__ __forceinline__ void cp_async_first(void* shared, const void* global,
                                               int bytes) {
    static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16,
                  "cp.async moves 4, 8 or 16 bytes");
    struct alignas(Bytes) Whole {
        unsigned words[Bytes / 4];
    };
    Whole value = {};
    if (bytes == Bytes) {
        value = *static_cast<const Whole*>(global);
    } else {
        for (int i = 0; i < bytes; ++i)
            value.words[i / 4] |=
                static_cast<unsigned>(static_cast<const unsigned char*>(global)[i])
                << 8 * (i % 4);
    }
    *static_cast<Whole*>(shared) = value;
}

template <int Bytes>
__device__ __forceinline__ void cp_async_first(Shared shared, const void* global,
                                               int bytes) {
    cp_async_first<Bytes>(__cvta_shared_to_generic(shared.at), global, bytes);
}

__device__ __forceinline__ void cp_async_commit() {}

template <int Newest>
__device__ __forceinline__ void cp_async_wait() {}

__device__ __forceinline__ void cp_async_wait_all() {}

#else

// 16 bytes go past the first-level cache (.cg): nobody will read them there.
template <int Bytes>
__device__ __forceinline__ void cp_async_first(Shared shared, const void* global,
                                               int bytes) {
    static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16,
                  "cp.async moves 4, 8 or 16 bytes");
    unsigned to = shared.at;
    if constexpr (Bytes == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to),
                     "l"(global), "r"(bytes)
                     : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to),
                     "l"(global), "n"(Bytes), "r"(bytes)
                     : "memory");
    }
}

template <int Bytes>
__device__ __forceinline__ void cp_async_first(void* shared, const void* global,
                                               int bytes) {
    cp_async_first<Bytes>(shared_address(shared), global, bytes);
}

__device__ __forceinline__ void cp_async_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int Newest>
__device__ __forceinline__ void cp_async_wait() {
    static_assert(Newest >= 0, "wait for all but the newest 0 groups, or more");
    asm volatile("cp.async.wait_group %0;" ::"n"(Newest) : "memory");
}

__device__ __forceinline__ void cp_async_wait_all() {
    asm volatile("cp.async.wait_all;" ::: "memory");
}

#endif

template <int Bytes, class To>
__device__ __forceinline__ void cp_async(To shared, const void* global,
                                         bool valid = true) {
    cp_async_first<Bytes>(shared, global, valid ? Bytes : 0);
}

#else  // the emulator

template <int Bytes>
__forceinline__ void cp_async_first(void* shared, const void* global, int bytes,
                                    int line = __builtin_LINE()) {
    static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16,
                  "cp.async moves 4, 8 or 16 bytes");
    size_t both = reinterpret_cast<size_t>(shared) | reinterpret_cast<size_t>(global);
    if (both % Bytes != 0)
        kwemu_misuse("gave cp_async an address that is not aligned to its size", line);
    if (bytes < 0 || bytes > Bytes)
        kwemu_misuse("told cp_async_first to copy fewer than 0 or too many bytes",
                     line);
    kwemu_copy_async(shared, global, Bytes, static_cast<unsigned>(bytes), line);
}

template <int Bytes>
__forceinline__ void cp_async_first(Shared shared, const void* global, int bytes,
                                    int line = __builtin_LINE()) {
    cp_async_first<Bytes>(static_cast<void*>(shared.at), global, bytes, line);
}

template <int Bytes, class To>
__forceinline__ void cp_async(To shared, const void* global, bool valid = true,
                              int line = __builtin_LINE()) {
    cp_async_first<Bytes>(shared, global, valid ? Bytes : 0, line);
}

__forceinline__ void cp_async_commit() {
    kwemu_copy_commit();
}

template <int Newest>
__forceinline__ void cp_async_wait() {
    kwemu_copy_wait(Newest);
}

__forceinline__ void cp_async_wait_all() {
    kwemu_copy_commit();
    kwemu_copy_wait(0);
}

#endif

}  // namespace kw
