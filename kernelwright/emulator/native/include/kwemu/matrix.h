// Tensor-core products of a warp: the lanes' registers are gathered into two matrices,
// multiplied in fp32, and dealt out again, with the lane layout of mma.sync.
#ifndef KWEMU_MATRIX_H
#define KWEMU_MATRIX_H

namespace kwemu_mma {

// What a lane brings to the meeting.
struct Operands {
    const void* a;
    const void* b;
    const void* c;
    void* d;
};

struct Place {
    int row, column;
};

// In all layouts lane = 4 * group + pair: a group holds rows g and g + 8 of A and C, and
// column g of B; a pair holds two neighbours along the other axis.

// A of m16 x k16, 8 elements a lane and 16 rows.
inline Place place_a(int lane, int i) {
    int j = i & 7;
    return {(i >> 3) * 16 + (lane >> 2) + 8 * (j >> 1 & 1),
            2 * (lane & 3) + (j & 1) + 8 * (j >> 2)};
}
// B of k16 x n8, 4 elements a lane and 8 columns.
inline Place place_b(int lane, int i) {
    int j = i & 3;
    return {2 * (lane & 3) + (j & 1) + 8 * (j >> 1), (i >> 2) * 8 + (lane >> 2)};
}
// C of m16 x n8, 4 elements a lane.
inline Place place_c(int lane, int i) {
    int j = i & 3;
    return {(lane >> 2) + 8 * (j >> 1), (i >> 2) * 8 + 2 * (lane & 3) + (j & 1)};
}
// A of m16 x k8 in tf32, 4 elements a lane; B of k8 x n8, 2 elements a lane.
inline Place place_a_tf32(int lane, int i) {
    return {(lane >> 2) + 8 * (i & 1), (lane & 3) + 4 * (i >> 1)};
}
inline Place place_b_tf32(int lane, int i) {
    return {(lane & 3) + 4 * (i & 1), (i >> 1) * 8 + (lane >> 2)};
}

// The tensor cores read the upper 19 bits of a tf32 operand and ignore the rest.
inline float as_tf32(float x) {
    unsigned bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= 0xffffe000u;
    memcpy(&x, &bits, sizeof bits);
    return x;
}

// C += A B, all of them row-major; the inner loop runs over neighbours.
template <int M, int N, int K>
inline void multiply(const float (&a)[M][K], const float (&b)[K][N], float (&c)[M][N]) {
    for (int m = 0; m < M; ++m)
        for (int k = 0; k < K; ++k) {
            float x = a[m][k];
            for (int n = 0; n < N; ++n) c[m][n] += x * b[k][n];
        }
}

template <class Function>
inline void each_lane(unsigned present, Function function) {
    for (unsigned rest = present; rest; rest &= rest - 1) function(__builtin_ctz(rest));
}

// mma.sync.m16n8k16 for T of two bytes, m16n8k8 for tf32.
template <class T, bool tf32>
inline void mma_lanes(void** lanes, unsigned present) {
    constexpr int K = tf32 ? 8 : 16;
    float a[16][K] = {}, b[K][8] = {}, c[16][8] = {};
    each_lane(present, [&](int lane) {
        Operands* own = static_cast<Operands*>(lanes[lane]);
        for (int i = 0; i < K / 2; ++i) {
            Place at = tf32 ? place_a_tf32(lane, i) : place_a(lane, i);
            float x = static_cast<float>(static_cast<const T*>(own->a)[i]);
            a[at.row][at.column] = tf32 ? as_tf32(x) : x;
        }
        for (int i = 0; i < K / 4; ++i) {
            Place at = tf32 ? place_b_tf32(lane, i) : place_b(lane, i);
            float x = static_cast<float>(static_cast<const T*>(own->b)[i]);
            b[at.row][at.column] = tf32 ? as_tf32(x) : x;
        }
        for (int i = 0; i < 4; ++i) {
            Place at = place_c(lane, i);
            c[at.row][at.column] = static_cast<const float*>(own->c)[i];
        }
    });
    multiply(a, b, c);
    each_lane(present, [&](int lane) {
        for (int i = 0; i < 4; ++i) {
            Place at = place_c(lane, i);
            float* d = static_cast<float*>(static_cast<Operands*>(lanes[lane])->d);
            d[i] = c[at.row][at.column];
        }
    });
}

template <class T, bool tf32>
inline void mma(void* d, const void* a, const void* b, const void* c, int line) {
    Operands own{a, b, c, d};
    kwemu_meet(0xffffffffu, KWEMU_MMA, &own, mma_lanes<T, tf32>, line);
}

// ---- ldmatrix --------------------------------------------------------------------------

struct Rows {
    const void* row;  // of the matrix and the row that this lane names
    unsigned* out;
    int count;
    bool transposed;
};

inline void load_lanes(void** lanes, unsigned present) {
    Rows* first = static_cast<Rows*>(lanes[__builtin_ctz(present)]);
    for (int matrix = 0; matrix < first->count; ++matrix) {
        unsigned short values[8][8] = {};
        for (int row = 0; row < 8; ++row)
            if (present >> (matrix * 8 + row) & 1)
                memcpy(values[row], static_cast<Rows*>(lanes[matrix * 8 + row])->row,
                       16);
        each_lane(present, [&](int lane) {
            int row = lane >> 2, column = 2 * (lane & 3);
            unsigned low = values[row][column], high = values[row][column + 1];
            if (first->transposed)
                low = values[column][row], high = values[column + 1][row];
            static_cast<Rows*>(lanes[lane])->out[matrix] = low | high << 16;
        });
    }
}

inline void load_matrix(unsigned* out, const void* row, int count, bool transposed,
                        int line) {
    bool names_a_row = static_cast<int>(kwemu_lane()) < 8 * count;
#ifdef KWEMU_TRACED
    if (names_a_row) kwemu_note(row, 16, 5, line);
#endif
    if (names_a_row && (reinterpret_cast<size_t>(row) & 15))
        kwemu_misuse("gave ldmatrix a row that is not 16-byte aligned", line);
    Rows own{row, out, count, transposed};
    kwemu_meet(0xffffffffu, KWEMU_LDMATRIX, &own, load_lanes, line);
}

}  // namespace kwemu_mma

#endif  // KWEMU_MATRIX_H
