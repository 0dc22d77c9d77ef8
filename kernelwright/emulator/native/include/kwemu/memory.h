// Loads and stores with a cache hint, fences, and addresses' spaces.
#ifndef KWEMU_MEMORY_H
#define KWEMU_MEMORY_H

#define KWEMU_LOAD(name)              \
    template <class T>                \
    inline T name(const T* address) { \
        return *address;              \
    }
KWEMU_LOAD(__ldg)
KWEMU_LOAD(__ldcg)
KWEMU_LOAD(__ldca)
KWEMU_LOAD(__ldcs)
KWEMU_LOAD(__ldlu)
#undef KWEMU_LOAD

// Past the caches on a GPU: another thread's newest value, so a load that is repeated.
template <class T>
inline T __ldcv(const T* address) {
    T value;
    asm volatile("" ::: "memory");
    value = *address;
    return value;
}

#define KWEMU_STORE(name)                                       \
    template <class T>                                          \
    inline void name(T* address, std::common_type_t<T> value) { \
        *address = value;                                       \
    }
KWEMU_STORE(__stcg)
KWEMU_STORE(__stcs)
KWEMU_STORE(__stwb)
KWEMU_STORE(__stwt)
#undef KWEMU_STORE

inline void __threadfence() {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
// The threads of a block share a processor here: what their order needs is the compiler's.
// The traced build's hook knows the fence's scope by this weaker order.
inline void __threadfence_block() {
    __atomic_thread_fence(__ATOMIC_ACQ_REL);
}
inline void __threadfence_system() {
#ifdef KWEMU_TRACED
    kwemu_system_fence();
#else
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

// Shared memory has no address window of its own here: an address is its own window.
inline size_t __cvta_generic_to_shared(const void* address) {
    return reinterpret_cast<size_t>(address);
}
inline size_t __cvta_generic_to_global(const void* address) {
    return reinterpret_cast<size_t>(address);
}

#endif  // KWEMU_MEMORY_H
