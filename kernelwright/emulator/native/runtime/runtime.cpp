// The whole runtime as one translation unit: the switch from fiber to fiber is then
// inlined into what waits, and compiling it takes half as long.
#include "collectives.cpp"
#include "pool.cpp"
#include "rounding.cpp"
#include "scheduler.cpp"
#include "signals.cpp"
#include "switch_x86_64.cpp"
#include "thread_calls.cpp"
#include "trace_hooks.cpp"
#include "trace_requests.cpp"
#include "trace_shadow.cpp"
