// printf, assert, trap and the clocks.
#ifndef KWEMU_OUTPUT_H
#define KWEMU_OUTPUT_H

#define printf kwemu_printf

[[noreturn]] inline void __trap(KWEMU_LINE) {
    kwemu_trap(line);
}
inline void __brkpt() {}
inline long long clock64() {
    return static_cast<long long>(kwemu_clock());
}
inline clock_t kwemu_clock_t() {
    return static_cast<clock_t>(kwemu_clock());
}
#define clock() kwemu_clock_t()
inline unsigned long long __globaltimer() {
    return kwemu_nanoseconds();
}
inline void __nanosleep(unsigned nanoseconds) {
    kwemu_sleep(nanoseconds);
}

#undef assert
#define assert(expression) \
    ((expression) ? static_cast<void>(0) : kwemu_assert_failed(#expression, __LINE__))

#endif  // KWEMU_OUTPUT_H
