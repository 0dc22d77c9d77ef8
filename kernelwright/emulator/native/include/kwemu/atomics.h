// Atomics. One that changes nothing is what a thread that spins does (a failed
// compare-and-swap, an exchange that finds the lock taken): the others get their turn, as
// on a GPU since Volta, where the lanes of a warp make progress on their own.
#ifndef KWEMU_ATOMICS_H
#define KWEMU_ATOMICS_H

// The trace hears of an atomic once, from where the author wrote it.
#ifdef KWEMU_TRACED
#define KWEMU_NOTE_ATOMIC(address) kwemu_note(address, sizeof *(address), 2, 0)
#define KWEMU_NOTE_BLOCK_ATOMIC(address) \
    kwemu_note(address, sizeof *(address), 2 | KWEMU_BLOCK_SCOPE, 0)
#define KWEMU_NOTE_SYSTEM_ATOMIC(address) \
    kwemu_note(address, sizeof *(address), 2 | KWEMU_SYSTEM_SCOPE, 0)
#else
#define KWEMU_NOTE_ATOMIC(address) static_cast<void>(0)
#define KWEMU_NOTE_BLOCK_ATOMIC(address) static_cast<void>(0)
#define KWEMU_NOTE_SYSTEM_ATOMIC(address) static_cast<void>(0)
#endif

template <class T>
inline T kwemu_exchange(T* address, T value) {
    T old = __atomic_exchange_n(address, value, __ATOMIC_RELAXED);
    if (old == value) kwemu_yield();
    return old;
}

template <class T>
inline T kwemu_compare_swap(T* address, T compare, T value) {
    T old = compare;
    if (!__atomic_compare_exchange_n(address, &old, value, false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED))
        kwemu_yield();
    return old;
}

// Any operation on up to eight bytes, as a loop over compare-and-swap on their bits.
template <class T, class Operation>
inline T kwemu_update(T* address, Operation operation) {
    using Bits = std::conditional_t<
        sizeof(T) == 8, unsigned long long,
        std::conditional_t<sizeof(T) == 4, unsigned, unsigned short>>;
    static_assert(sizeof(T) == sizeof(Bits), "an atomic needs 2, 4 or 8 bytes");
    Bits* place = reinterpret_cast<Bits*>(address);
    Bits before = __atomic_load_n(place, __ATOMIC_RELAXED), after;
    T old;
    do {
        memcpy(&old, &before, sizeof old);
        T updated = operation(old);
        memcpy(&after, &updated, sizeof after);
    } while (!__atomic_compare_exchange_n(place, &before, after, true, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    return old;
}

// An atomic in its three scopes. They do the same, and the trace is told which one it is.
#define KWEMU_SCOPES(name, type, parameters, ...) \
    inline type name parameters {                 \
        KWEMU_NOTE_ATOMIC(address);               \
        __VA_ARGS__                               \
    }                                             \
    inline type name##_block parameters {         \
        KWEMU_NOTE_BLOCK_ATOMIC(address);         \
        __VA_ARGS__                               \
    }                                             \
    inline type name##_system parameters {        \
        KWEMU_NOTE_SYSTEM_ATOMIC(address);        \
        __VA_ARGS__                               \
    }

#define KWEMU_ATOMIC(name, type, expression) \
    KWEMU_SCOPES(name, type, (type * address, type value), return expression;)

// ---- arithmetic ------------------------------------------------------------------------

#define KWEMU_ATOMIC_INTEGER(type)                                                     \
    KWEMU_ATOMIC(atomicExch, type, kwemu_exchange(address, value))                     \
    KWEMU_ATOMIC(atomicMin, type,                                                      \
                 kwemu_update(address, [=](type x) { return x < value ? x : value; })) \
    KWEMU_ATOMIC(atomicMax, type,                                                      \
                 kwemu_update(address, [=](type x) { return x > value ? x : value; })) \
    KWEMU_ATOMIC(atomicAnd, type,                                                      \
                 __atomic_fetch_and(address, value, __ATOMIC_RELAXED))                 \
    KWEMU_ATOMIC(atomicOr, type, __atomic_fetch_or(address, value, __ATOMIC_RELAXED))  \
    KWEMU_ATOMIC(atomicXor, type,                                                      \
                 __atomic_fetch_xor(address, value, __ATOMIC_RELAXED))                 \
    KWEMU_SCOPES(atomicCAS, type, (type * address, type compare, type value),          \
                 return kwemu_compare_swap(address, compare, value);)

template <class T>
inline T kwemu_add(T* address, T value) {
    T old = __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
    if (value == 0) kwemu_yield();
    return old;
}

KWEMU_ATOMIC_INTEGER(int)
KWEMU_ATOMIC_INTEGER(unsigned int)
KWEMU_ATOMIC_INTEGER(unsigned long long)
KWEMU_ATOMIC(atomicMin, long long,
             kwemu_update(address, [=](long long x) { return x < value ? x : value; }))
KWEMU_ATOMIC(atomicMax, long long,
             kwemu_update(address, [=](long long x) { return x > value ? x : value; }))
KWEMU_ATOMIC(atomicAdd, int, kwemu_add(address, value))
KWEMU_ATOMIC(atomicAdd, unsigned int, kwemu_add(address, value))
KWEMU_ATOMIC(atomicAdd, unsigned long long, kwemu_add(address, value))
KWEMU_ATOMIC(atomicAdd, float,
             kwemu_update(address, [=](float x) { return x + value; }))
KWEMU_ATOMIC(atomicAdd, double,
             kwemu_update(address, [=](double x) { return x + value; }))
KWEMU_ATOMIC(atomicSub, int, __atomic_fetch_sub(address, value, __ATOMIC_RELAXED))
KWEMU_ATOMIC(atomicSub, unsigned int,
             __atomic_fetch_sub(address, value, __ATOMIC_RELAXED))
KWEMU_ATOMIC(atomicInc, unsigned int,
             kwemu_update(address, [=](unsigned x) { return x >= value ? 0 : x + 1; }))
KWEMU_ATOMIC(atomicDec, unsigned int, kwemu_update(address, [=](unsigned x) {
                 return x == 0 || x > value ? value : x - 1;
             }))

// uint64_t is `unsigned long` on the host and `unsigned long long` for NVRTC.
KWEMU_ATOMIC_INTEGER(unsigned long)
KWEMU_ATOMIC(atomicAdd, unsigned long, kwemu_add(address, value))

inline float kwemu_exchange(float* address, float value) {
    unsigned bits;
    memcpy(&bits, &value, sizeof bits);
    bits = kwemu_exchange(reinterpret_cast<unsigned*>(address), bits);
    memcpy(&value, &bits, sizeof bits);
    return value;
}
KWEMU_ATOMIC(atomicExch, float, kwemu_exchange(address, value))

KWEMU_SCOPES(atomicCAS, unsigned short,
             (unsigned short* address, unsigned short compare, unsigned short value),
             return kwemu_compare_swap(address, compare, value);)

#undef KWEMU_ATOMIC_INTEGER

#endif  // KWEMU_ATOMICS_H
