// Read after the prelude and before the author's first line, in both builds: what #if can
// ask is then the same in both. Not part of the prelude, since g++ defines what stands on
// its command line anew behind a precompiled header.
#undef KWEMU_TRACED
#undef KWEMU_NOTE_ATOMIC
#undef KWEMU_NOTE_BLOCK_ATOMIC
#undef KWEMU_NOTE_SYSTEM_ATOMIC
#undef KWEMU_WHOLE
#undef _GLIBCXX_TSAN
#undef __SANITIZE_THREAD__
#ifdef __clang__
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wbuiltin-macro-redefined"
#undef __has_feature
#undef __has_extension
#define __has_feature(x) 0
#define __has_extension(x) 0
#pragma clang diagnostic pop
#endif
