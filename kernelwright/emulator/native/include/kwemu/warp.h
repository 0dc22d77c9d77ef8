// Barriers, shuffles, votes, matches and reductions.
#ifndef KWEMU_WARP_H
#define KWEMU_WARP_H

inline void __syncthreads(KWEMU_LINE) {
    kwemu_barrier(line);
}
inline int __syncthreads_count(int predicate, KWEMU_LINE) {
    return kwemu_barrier_count(predicate, line);
}
inline int __syncthreads_and(int predicate, KWEMU_LINE) {
    return kwemu_barrier_count(predicate == 0, line) == 0;
}
inline int __syncthreads_or(int predicate, KWEMU_LINE) {
    return kwemu_barrier_count(predicate, line) != 0;
}

inline void kwemu_nothing(void**, unsigned) {}
inline void __syncwarp(unsigned mask = 0xffffffffu, KWEMU_LINE) {
    kwemu_meet(mask, KWEMU_SYNCWARP, nullptr, kwemu_nothing, line);
}
inline unsigned __activemask(KWEMU_LINE) {
    return kwemu_activemask(line);
}

// ---- shuffles --------------------------------------------------------------------------
// A value of up to eight bytes travels as its bits.

template <class T>
inline T kwemu_shuffle_bits(unsigned mask, T value, unsigned source, int line) {
    static_assert(sizeof(T) <= 8, "a shuffle moves at most eight bytes");
    unsigned long long bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = kwemu_shuffle(mask, bits, source, line);
    memcpy(&value, &bits, sizeof value);
    return value;
}

// The types that CUDA shuffles: a struct is refused here because it is refused there.
template <class T>
struct kwemu_shuffles : std::is_arithmetic<T> {};

#define KWEMU_SHUFFLE_RESULT \
    template <class T>       \
    inline std::enable_if_t<kwemu_shuffles<T>::value, T>

KWEMU_SHUFFLE_RESULT __shfl_sync(unsigned mask, T value, int source, int width = 32,
                                 KWEMU_LINE) {
    int lane = static_cast<int>(kwemu_lane());
    int from = (lane & ~(width - 1)) | (source & (width - 1));
    return kwemu_shuffle_bits(mask, value, static_cast<unsigned>(from), line);
}

KWEMU_SHUFFLE_RESULT __shfl_up_sync(unsigned mask, T value, unsigned delta,
                                    int width = 32, KWEMU_LINE) {
    int lane = static_cast<int>(kwemu_lane());
    int from = lane - static_cast<int>(delta);
    if (from < (lane & ~(width - 1))) from = lane;
    return kwemu_shuffle_bits(mask, value, static_cast<unsigned>(from), line);
}

KWEMU_SHUFFLE_RESULT __shfl_down_sync(unsigned mask, T value, unsigned delta,
                                      int width = 32, KWEMU_LINE) {
    int lane = static_cast<int>(kwemu_lane());
    long long from = static_cast<long long>(lane) + delta;
    if (from > (lane | (width - 1))) from = lane;
    return kwemu_shuffle_bits(mask, value, static_cast<unsigned>(from), line);
}

KWEMU_SHUFFLE_RESULT __shfl_xor_sync(unsigned mask, T value, int lane_mask,
                                     int width = 32, KWEMU_LINE) {
    int lane = static_cast<int>(kwemu_lane());
    int from = lane ^ lane_mask;
    if (from > (lane | (width - 1))) from = lane;
    return kwemu_shuffle_bits(mask, value, static_cast<unsigned>(from & 31), line);
}

#undef KWEMU_SHUFFLE_RESULT

// ---- votes and matches -----------------------------------------------------------------

inline unsigned __ballot_sync(unsigned mask, int predicate, KWEMU_LINE) {
    return kwemu_ballot(mask, predicate, line);
}
inline int __any_sync(unsigned mask, int predicate, KWEMU_LINE) {
    return kwemu_ballot(mask, predicate, line) != 0;
}
inline int __all_sync(unsigned mask, int predicate, KWEMU_LINE) {
    return kwemu_ballot(mask, !predicate, line) == 0;
}

template <class T>
inline unsigned long long kwemu_bits_of(T value) {
    static_assert(std::is_arithmetic<T>::value, "a match compares numbers");
    unsigned long long bits = 0;
    memcpy(&bits, &value, sizeof value);
    return bits;
}
template <class T>
inline unsigned __match_any_sync(unsigned mask, T value, KWEMU_LINE) {
    return kwemu_match(mask, kwemu_bits_of(value), 0, line);
}
template <class T>
inline unsigned __match_all_sync(unsigned mask, T value, int* all, KWEMU_LINE) {
    unsigned same = kwemu_match(mask, kwemu_bits_of(value), 1, line);
    *all = same != 0;
    return same;
}

// ---- reductions (compute capability 8.0) -----------------------------------------------

template <class T, class Combine>
inline T kwemu_reduce(unsigned mask, T value, int line) {
    T own = value;
    kwemu_meet(
        mask, KWEMU_REDUCE, &own,
        [](void** lanes, unsigned present) {
            T result = *static_cast<T*>(lanes[__builtin_ctz(present)]);
            for (unsigned rest = present & (present - 1); rest; rest &= rest - 1)
                result =
                    Combine{}(result, *static_cast<T*>(lanes[__builtin_ctz(rest)]));
            for (unsigned rest = present; rest; rest &= rest - 1)
                *static_cast<T*>(lanes[__builtin_ctz(rest)]) = result;
        },
        line);
    return own;
}

#define KWEMU_REDUCTION(name, type, expression)                                 \
    inline type __reduce_##name##_sync(unsigned mask, type value, KWEMU_LINE) { \
        struct Combine {                                                        \
            type operator()(type a, type b) const {                             \
                return expression;                                              \
            }                                                                   \
        };                                                                      \
        return kwemu_reduce<type, Combine>(mask, value, line);                  \
    }
KWEMU_REDUCTION(add, unsigned, a + b)
KWEMU_REDUCTION(add, int,
                static_cast<int>(static_cast<unsigned>(a) + static_cast<unsigned>(b)))
KWEMU_REDUCTION(min, unsigned, a < b ? a : b)
KWEMU_REDUCTION(min, int, a < b ? a : b)
KWEMU_REDUCTION(max, unsigned, a > b ? a : b)
KWEMU_REDUCTION(max, int, a > b ? a : b)
KWEMU_REDUCTION(and, unsigned, a& b)
KWEMU_REDUCTION(or, unsigned, a | b)
KWEMU_REDUCTION(xor, unsigned, a ^ b)
#undef KWEMU_REDUCTION

#endif  // KWEMU_WARP_H
