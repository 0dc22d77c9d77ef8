// nvcuda::wmma, which <mma.h> opens: fragments with the lane layout of m16n8k16, so that
// each lane touches the memory that it touches on an Ampere GPU.
#ifndef KWEMU_WMMA_H
#define KWEMU_WMMA_H

namespace kwemu_wmma {

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
namespace precision {
struct tf32;
}
enum layout_t { mem_row_major, mem_col_major };

template <class T>
struct Stored {
    using type = T;
};
template <>
struct Stored<precision::tf32> {
    using type = float;
};

using kwemu_mma::Place;

// Where element i of a lane's fragment lies in the matrix. The 8 x 32 x 16 shape is the
// 32 x 8 x 16 one with the roles of A and B exchanged, so its places are transposed.
template <class Use, int M, int N, class T>
inline Place place(int lane, int i) {
    constexpr bool tf32 = std::is_same<T, precision::tf32>::value;
    constexpr bool turned = M == 8;
    if constexpr (std::is_same<Use, matrix_a>::value) {
        if constexpr (tf32) return kwemu_mma::place_a_tf32(lane, i);
        if constexpr (!turned) return kwemu_mma::place_a(lane, i);
        Place at = kwemu_mma::place_b(lane, i);
        return {at.column, at.row};
    } else if constexpr (std::is_same<Use, matrix_b>::value) {
        if constexpr (tf32) return kwemu_mma::place_b_tf32(lane, i);
        if constexpr (!turned) return kwemu_mma::place_b(lane, i);
        Place at = kwemu_mma::place_a(lane, i);
        return {at.column, at.row};
    } else {
        // Tiles of 16 x 8, neighbours along the short side first.
        constexpr int wide = turned ? M : N;
        constexpr int in_a_row = wide / 8;
        int tile = i >> 2;
        Place at = kwemu_mma::place_c(lane, i & 3);
        Place whole{at.row + 16 * (tile / in_a_row), at.column + 8 * (tile % in_a_row)};
        return turned ? Place{whole.column, whole.row} : whole;
    }
}

template <class Use, int M, int N, int K, class T, class Layout = void>
class fragment {
    static constexpr bool is_a = std::is_same<Use, matrix_a>::value;
    static constexpr bool is_b = std::is_same<Use, matrix_b>::value;
    static_assert((M == 16 && N == 16 && (K == 16 || K == 8)) ||
                      (M == 32 && N == 8 && K == 16) || (M == 8 && N == 32 && K == 16),
                  "wmma shapes here: 16x16x16, 32x8x16, 8x32x16, and 16x16x8 for tf32");

  public:
    using element_type = T;
    using storage_element_type = typename Stored<T>::type;
    static constexpr int rows = is_b ? K : M;
    static constexpr int columns = is_a ? K : N;
    static constexpr int num_elements = rows * columns / 32;
    enum { num_storage_elements = num_elements };
    storage_element_type x[num_elements];

    // What registers hold before they are written is anything. NaN shows in every sum
    // that a fill_fragment should have begun; what lay on the stack may well be 0.
    fragment() {
        if constexpr (!is_a && !is_b) __builtin_memset(x, 0xff, sizeof x);
    }
};

template <class Fragment, class V>
inline void fill_fragment(Fragment& fragment, const V& value) {
    for (int i = 0; i < Fragment::num_elements; ++i)
        fragment.x[i] = static_cast<typename Fragment::storage_element_type>(value);
}

namespace detail {

inline size_t index_of(Place at, unsigned stride, bool by_row) {
    unsigned row = static_cast<unsigned>(at.row);
    unsigned column = static_cast<unsigned>(at.column);
    return by_row ? row * stride + column : column * stride + row;
}

#ifdef KWEMU_TRACED
#define KWEMU_RAW __attribute__((noinline, no_sanitize("thread")))

// How a GPU's lanes fetch a fragment: two 16-bit elements (or two of an accumulator) at
// once along the way in which memory runs. Where the fragment's own pairs stand across
// it, lanes fetch the mirrored places of each 8 x 8 part and trade registers.
template <class Use, int M, int N, class T, class Element, int Count>
inline void note(const Element* base, unsigned stride, bool by_row, unsigned op,
                 int line) {
    int lane = static_cast<int>(kwemu_lane());
    constexpr bool single = std::is_same<T, precision::tf32>::value;
    for (int i = 0; i < Count; i += single ? 1 : 2) {
        Place at = place<Use, M, N, T>(lane, i);
        if constexpr (single) {
            kwemu_note(base + index_of(at, stride, by_row), sizeof(Element), op, line);
        } else {
            Place next = place<Use, M, N, T>(lane, i + 1);
            if ((next.column == at.column + 1) != by_row)
                at = {(at.row & ~7) + (at.column & 7), (at.column & ~7) + (at.row & 7)};
            kwemu_note(base + index_of(at, stride, by_row), 2 * sizeof(Element), op,
                       line);
        }
    }
}
#else
#define KWEMU_RAW inline
#endif

template <class Use, int M, int N, class T, class Element, int Count>
KWEMU_RAW void load(Element (&x)[Count], const Element* from, unsigned stride,
                    bool by_row) {
    int lane = static_cast<int>(kwemu_lane());
    for (int i = 0; i < Count; ++i)
        x[i] = from[index_of(place<Use, M, N, T>(lane, i), stride, by_row)];
}

template <int M, int N, class T, int Count>
KWEMU_RAW void store(const T (&x)[Count], T* to, unsigned stride, bool by_row) {
    int lane = static_cast<int>(kwemu_lane());
    for (int i = 0; i < Count; ++i)
        to[index_of(place<accumulator, M, N, T>(lane, i), stride, by_row)] = x[i];
}

#undef KWEMU_RAW

}  // namespace detail

template <class Use, int M, int N, int K, class T, class Layout>
inline void load_matrix_sync(fragment<Use, M, N, K, T, Layout>& fragment,
                             const typename Stored<T>::type* from, unsigned stride,
                             KWEMU_LINE) {
    kwemu_meet(0xffffffffu, KWEMU_FRAGMENT, nullptr, kwemu_nothing, line);
#ifdef KWEMU_TRACED
    detail::note<Use, M, N, T, typename Stored<T>::type,
                 std::remove_reference_t<decltype(fragment)>::num_elements>(
        from, stride, std::is_same<Layout, row_major>::value, 0, line);
#endif
    detail::load<Use, M, N, T>(fragment.x, from, stride,
                               std::is_same<Layout, row_major>::value);
}

template <int M, int N, int K, class T>
inline void load_matrix_sync(fragment<accumulator, M, N, K, T>& fragment, const T* from,
                             unsigned stride, layout_t layout, KWEMU_LINE) {
    kwemu_meet(0xffffffffu, KWEMU_FRAGMENT, nullptr, kwemu_nothing, line);
#ifdef KWEMU_TRACED
    detail::note<accumulator, M, N, T, T,
                 std::remove_reference_t<decltype(fragment)>::num_elements>(
        from, stride, layout == mem_row_major, 0, line);
#endif
    detail::load<accumulator, M, N, T>(fragment.x, from, stride,
                                       layout == mem_row_major);
}

template <int M, int N, int K, class T>
inline void store_matrix_sync(T* to, const fragment<accumulator, M, N, K, T>& fragment,
                              unsigned stride, layout_t layout, KWEMU_LINE) {
    kwemu_meet(0xffffffffu, KWEMU_FRAGMENT, nullptr, kwemu_nothing, line);
    bool by_row = layout == mem_row_major;
#ifdef KWEMU_TRACED
    detail::note<accumulator, M, N, T, T,
                 std::remove_reference_t<decltype(fragment)>::num_elements>(
        to, stride, by_row, 1, line);
#endif
    detail::store<M, N>(fragment.x, to, stride, by_row);
}

template <int M, int N, int K, class AB, class LayoutA, class LayoutB, class CD>
inline void mma_sync(fragment<accumulator, M, N, K, CD>& d,
                     const fragment<matrix_a, M, N, K, AB, LayoutA>& a,
                     const fragment<matrix_b, M, N, K, AB, LayoutB>& b,
                     const fragment<accumulator, M, N, K, CD>& c, KWEMU_LINE) {
    using Element = typename Stored<AB>::type;
    kwemu_mma::Operands own{a.x, b.x, c.x, d.x};
    kwemu_meet(
        0xffffffffu, KWEMU_MMA, &own,
        [](void** lanes, unsigned present) {
            constexpr bool tf32 = std::is_same<AB, precision::tf32>::value;
            float left[M][K] = {}, right[K][N] = {}, sum[M][N] = {};
            kwemu_mma::each_lane(present, [&](int lane) {
                auto* own = static_cast<kwemu_mma::Operands*>(lanes[lane]);
                for (int i = 0; i < M * K / 32; ++i) {
                    Place at = place<matrix_a, M, N, AB>(lane, i);
                    float x =
                        static_cast<float>(static_cast<const Element*>(own->a)[i]);
                    left[at.row][at.column] = tf32 ? kwemu_mma::as_tf32(x) : x;
                }
                for (int i = 0; i < K * N / 32; ++i) {
                    Place at = place<matrix_b, M, N, AB>(lane, i);
                    float x =
                        static_cast<float>(static_cast<const Element*>(own->b)[i]);
                    right[at.row][at.column] = tf32 ? kwemu_mma::as_tf32(x) : x;
                }
                for (int i = 0; i < M * N / 32; ++i) {
                    Place at = place<accumulator, M, N, CD>(lane, i);
                    sum[at.row][at.column] =
                        static_cast<float>(static_cast<const CD*>(own->c)[i]);
                }
            });
            kwemu_mma::multiply(left, right, sum);
            kwemu_mma::each_lane(present, [&](int lane) {
                auto* own = static_cast<kwemu_mma::Operands*>(lanes[lane]);
                for (int i = 0; i < M * N / 32; ++i) {
                    Place at = place<accumulator, M, N, CD>(lane, i);
                    static_cast<CD*>(own->d)[i] =
                        static_cast<CD>(sum[at.row][at.column]);
                }
            });
        },
        line);
}

// Rounds to tf32's ten bits of fraction, ties away from zero, as cvt.rna does.
inline float __float_to_tf32(float x) {
    if (!(x - x == 0.0f)) return x;
    return kwemu_mma::as_tf32(__uint_as_float(__float_as_uint(x) + 0x1000u));
}

}  // namespace kwemu_wmma

#endif  // KWEMU_WMMA_H
