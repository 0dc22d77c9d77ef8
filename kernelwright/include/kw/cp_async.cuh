// Asynchronous copies from global to shared memory (compute capability 8.0):
// the bytes travel without passing through registers, and have arrived after the wait.
//
//   kw::cp_async<16>(&tile[i], &x[j]);       // 4, 8 or 16 bytes, both ends so aligned
//   kw::cp_async<16>(&tile[i], &x[j], j < n) // zeros where the condition is false
//   kw::cp_async_commit();                   // what was issued so far is one group
//   kw::cp_async_wait<0>();                  // all but the newest 0 groups are there
//
// A wait is the thread's own: others see its bytes after a __syncthreads() behind it.
#pragma once

namespace kw {

#ifdef __CUDACC__

// 16 bytes go past the first-level cache (.cg): nobody will read them there.
template <int Bytes>
__device__ __forceinline__ void cp_async(void* shared, const void* global,
                                         bool valid = true) {
    static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16,
                  "cp.async moves 4, 8 or 16 bytes");
    unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    int size = valid ? Bytes : 0;
    if constexpr (Bytes == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to),
                     "l"(global), "r"(size)
                     : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to),
                     "l"(global), "n"(Bytes), "r"(size)
                     : "memory");
    }
}

__device__ __forceinline__ void cp_async_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int Newest>
__device__ __forceinline__ void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(Newest) : "memory");
}

__device__ __forceinline__ void cp_async_wait_all() {
    asm volatile("cp.async.wait_all;" ::: "memory");
}

#else  // the emulator

template <int Bytes>
__forceinline__ void cp_async(void* shared, const void* global, bool valid = true,
                              int line = __builtin_LINE()) {
    static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16,
                  "cp.async moves 4, 8 or 16 bytes");
    size_t both = reinterpret_cast<size_t>(shared) | reinterpret_cast<size_t>(global);
    if (both % Bytes != 0)
        kwemu_misuse("gave cp_async an address that is not aligned to its size", line);
#ifdef KWEMU_TRACED
    kwemu_here(line);
#endif
    kwemu_copy_async(shared, global, Bytes, valid ? Bytes : 0);
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
