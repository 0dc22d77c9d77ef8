// CUDA's vector types: aligned as on the GPU, so that a float4 moves as one 16-byte access.
#ifndef KWEMU_VECTOR_TYPES_H
#define KWEMU_VECTOR_TYPES_H

#ifdef KWEMU_TRACED
#define KWEMU_WHOLE_VECTOR2(name, type) \
    KWEMU_WHOLE(name)                   \
    constexpr name(type x, type y = {}) : x(x), y(y) {}
#define KWEMU_WHOLE_VECTOR4(name, type)                           \
    KWEMU_WHOLE(name)                                             \
    constexpr name(type x, type y = {}, type z = {}, type w = {}) \
        : x(x), y(y), z(z), w(w) {}
#else
#define KWEMU_WHOLE_VECTOR2(name, type)
#define KWEMU_WHOLE_VECTOR4(name, type)
#endif

// name: the prefix; type: of an element; a2, a4: the alignment of two and of four.
#define KWEMU_VECTOR(name, type, a2, a4)                               \
    struct name##1 {                                                   \
        type x;                                                        \
    };                                                                 \
    struct alignas(a2) name##2 {                                       \
        type x, y;                                                     \
        KWEMU_WHOLE_VECTOR2(name##2, type)                             \
    };                                                                 \
    struct name##3 {                                                   \
        type x, y, z;                                                  \
    };                                                                 \
    struct alignas(a4) name##4 {                                       \
        type x, y, z, w;                                               \
        KWEMU_WHOLE_VECTOR4(name##4, type)                             \
    };                                                                 \
    constexpr name##1 make_##name##1(type x) {                         \
        return {x};                                                    \
    }                                                                  \
    constexpr name##2 make_##name##2(type x, type y) {                 \
        return {x, y};                                                 \
    }                                                                  \
    constexpr name##3 make_##name##3(type x, type y, type z) {         \
        return {x, y, z};                                              \
    }                                                                  \
    constexpr name##4 make_##name##4(type x, type y, type z, type w) { \
        return {x, y, z, w};                                           \
    }
KWEMU_VECTOR(char, signed char, 2, 4)
KWEMU_VECTOR(uchar, unsigned char, 2, 4)
KWEMU_VECTOR(short, short, 4, 8)
KWEMU_VECTOR(ushort, unsigned short, 4, 8)
KWEMU_VECTOR(int, int, 8, 16)
KWEMU_VECTOR(uint, unsigned int, 8, 16)
KWEMU_VECTOR(long, long, 16, 16)
KWEMU_VECTOR(ulong, unsigned long, 16, 16)
KWEMU_VECTOR(longlong, long long, 16, 16)
KWEMU_VECTOR(ulonglong, unsigned long long, 16, 16)
KWEMU_VECTOR(float, float, 8, 16)
KWEMU_VECTOR(double, double, 16, 16)

#undef KWEMU_VECTOR
#undef KWEMU_WHOLE_VECTOR2
#undef KWEMU_WHOLE_VECTOR4

struct dim3 {
    unsigned int x, y, z;
    constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1)
        : x(x), y(y), z(z) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return {x, y, z}; }
};

#endif  // KWEMU_VECTOR_TYPES_H
