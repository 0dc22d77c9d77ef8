// printf, assert, trap and the clocks.
#ifndef KWEMU_OUTPUT_H
#define KWEMU_OUTPUT_H

#define printf kwemu_printf

inline void __trap(KWEMU_LINE) { kwemu_trap(line); }
inline void __brkpt() {}
inline long long clock64() { return static_cast<long long>(kwemu_clock()); }
inline long long kwemu_clock32() { return static_cast<long>(kwemu_clock()); }
inline unsigned long long __globaltimer() { return kwemu_nanoseconds(); }
inline void __nanosleep(unsigned nanoseconds) { kwemu_sleep(nanoseconds); }

#undef assert
#define assert(expression)                                                            \
    ((expression) ? static_cast<void>(0) : kwemu_assert_failed(#expression, __LINE__))

#endif  // KWEMU_OUTPUT_H
