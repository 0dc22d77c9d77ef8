// <float.h>: of the host, and for NVRTC, which has no C headers, what a kernel needs of it.
#ifdef __CUDACC_RTC__
#include <kw/standard_names.cuh>
#else
#include_next <float.h>
#endif
