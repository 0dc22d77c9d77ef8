// Eight codes a word on the host, in the order in which they come.

// [exercise:pack_int4]
extern "C" void pack_int4(const unsigned char* codes, unsigned* words,
                          long count) {
    // [hole]
    for (long i = 0; i < count / 8; ++i) {
        unsigned word = 0;
        for (int k = 0; k < 8; ++k) {
            unsigned code = codes[8 * i + k];
            word |= code << 4 * k;
        }
        words[i] = word;
    }
    // [/hole]
}
// [/exercise]
