// The values of eight codes a word, on the host.

// [exercise:unpack_int4]
extern "C" void unpack_int4(const unsigned* words, signed char* values,
                            long count, int zero) {
    // [hole]
    for (long i = 0; i < count; ++i) {
        int code = words[i / 8] >> 4 * (i % 8) & 15;
        values[i] = code - zero;
    }
    // [/hole]
}
// [/exercise]
