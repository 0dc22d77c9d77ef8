// Eight codes of four bits a word, in the order in which a tensor core wants them.
//
// A tile is 16 rows by 64 columns of codes, 512 bytes when packed. Of rows g and g + 8
// lane 4 g + t of a warp gets columns 16 t to 16 t + 15: 16 bytes, one load. The byte of
// a column holds row g's code below row g + 8's; of each four bytes the middle two are
// exchanged, so that shifts by 0, 4, 8 and 12 bits give the pairs of a fragment.
#include <cstdint>
#include <cstring>

constexpr long ROWS = 16, COLUMNS = 64, HALF = ROWS / 2,
               BYTES = HALF * COLUMNS;

static uint32_t exchanged(uint32_t word) {
    return (word & 0xff0000ffu) | (word >> 8 & 0xff00u) |
           (word << 8 & 0xff0000u);
}

// Exchange the middle bytes of 16 words, which may be where they come from.
static void exchange(const unsigned char* from, unsigned char* to) {
    uint32_t words[COLUMNS / 4];
    std::memcpy(words, from, COLUMNS);
    for (long i = 0; i < COLUMNS / 4; ++i) words[i] = exchanged(words[i]);
    std::memcpy(to, words, COLUMNS);
}

static void pack_rows(const unsigned char* low, const unsigned char* high,
                      unsigned char* out) {
    unsigned char both[COLUMNS];
    for (long i = 0; i < COLUMNS; ++i) both[i] = low[i] | high[i] << 4;
    exchange(both, out);
}

// Pack tiles of codes, each a byte; what lies past the last row or column is 0.
extern "C" void pack_tiles(const unsigned char* codes, int* words,
                           long rows, long columns, long first,
                           long last) {
    unsigned char* out = reinterpret_cast<unsigned char*>(words);
    const long across = (columns + COLUMNS - 1) / COLUMNS;
    for (long tile = first; tile < last; ++tile, out += BYTES) {
        const long row = tile / across * ROWS,
                   column = tile % across * COLUMNS;
        const unsigned char* corner = codes + row * columns + column;
        const bool whole =
            row + ROWS <= rows && column + COLUMNS <= columns;
        for (long g = 0; g < HALF; ++g) {
            const unsigned char* low = corner + g * columns;
            const unsigned char* high = low + HALF * columns;
            unsigned char some[2][COLUMNS];
            if (!whole) {
                const long wide = columns - column < COLUMNS
                                      ? columns - column
                                      : COLUMNS;
                std::memset(some, 0, sizeof some);
                if (row + g < rows) std::memcpy(some[0], low, wide);
                if (row + g + HALF < rows)
                    std::memcpy(some[1], high, wide);
                low = some[0], high = some[1];
            }
            pack_rows(low, high, out + g * COLUMNS);
        }
    }
}

// Write the codes of tiles as bytes again, those past the last row or column left out.
extern "C" void unpack_tiles(const int* words, unsigned char* codes,
                             long rows, long columns, long first,
                             long last) {
    const unsigned char* packed =
        reinterpret_cast<const unsigned char*>(words);
    const long across = (columns + COLUMNS - 1) / COLUMNS;
    for (long tile = first; tile < last; ++tile, packed += BYTES) {
        const long row = tile / across * ROWS,
                   column = tile % across * COLUMNS;
        const long wide =
            columns - column < COLUMNS ? columns - column : COLUMNS;
        for (long g = 0; g < HALF; ++g) {
            unsigned char both[COLUMNS], low[COLUMNS], high[COLUMNS];
            exchange(packed + g * COLUMNS, both);
            for (long i = 0; i < COLUMNS; ++i) low[i] = both[i] & 15;
            for (long i = 0; i < COLUMNS; ++i) high[i] = both[i] >> 4;
            unsigned char* to = codes + (row + g) * columns + column;
            if (row + g < rows) std::memcpy(to, low, wide);
            if (row + g + HALF < rows)
                std::memcpy(to + HALF * columns, high, wide);
        }
    }
}
