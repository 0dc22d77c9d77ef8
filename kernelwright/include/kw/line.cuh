// On the emulator an access bears the line of the kernel that asked for it: a function of
// these headers takes it as its last parameter and hands it on. A GPU has no use for it.
#pragma once

#ifdef __CUDACC__
#define KW_LINE_PARAMETER
#define KW_LINE
#else
#define KW_LINE_PARAMETER , int line = __builtin_LINE()
#define KW_LINE , line
#endif
