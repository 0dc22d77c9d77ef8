// In the traced build a vector or an aligned struct is copied in pieces of up to 16 bytes,
// as a GPU moves it: left to itself the optimiser copies element by element, and the trace
// would count four requests where there is one.
#ifndef KWEMU_WHOLE_H
#define KWEMU_WHOLE_H

#ifdef KWEMU_TRACED

namespace kwemu {

template <size_t size>
struct Piece;
template <>
struct Piece<1> {
    typedef unsigned char type __attribute__((may_alias));
};
template <>
struct Piece<2> {
    typedef unsigned short type __attribute__((may_alias));
};
template <>
struct Piece<4> {
    typedef unsigned type __attribute__((may_alias));
};
template <>
struct Piece<8> {
    typedef unsigned long long type __attribute__((may_alias));
};
template <>
struct Piece<16> {
    typedef long long type __attribute__((vector_size(16), may_alias));
};

template <size_t size, size_t alignment>
inline __attribute__((always_inline)) void move_whole(void* to, const void* from) {
    constexpr size_t piece = alignment > 16 ? 16 : alignment;
    using Type = typename Piece<piece>::type;
    // One load after the other and then the stores: `to` may be `from`.
    if constexpr (size == piece) {
        *static_cast<Type*>(to) = *static_cast<const Type*>(from);
    } else {
        for (size_t i = 0; i < size / piece; ++i)
            static_cast<Type*>(to)[i] = static_cast<const Type*>(from)[i];
    }
}

}  // namespace kwemu

// Inside a struct: it can be made without a value, and is copied in whole pieces.
// traced_source.py writes the same into an author's struct.
#define KWEMU_WHOLE(name)                                               \
    name() = default;                                                   \
    __attribute__((always_inline)) name(const name& other) {            \
        kwemu::move_whole<sizeof(name), alignof(name)>(this, &other);   \
    }                                                                   \
    __attribute__((always_inline)) name& operator=(const name& other) { \
        kwemu::move_whole<sizeof(name), alignof(name)>(this, &other);   \
        return *this;                                                   \
    }

#endif  // KWEMU_TRACED

#endif  // KWEMU_WHOLE_H
