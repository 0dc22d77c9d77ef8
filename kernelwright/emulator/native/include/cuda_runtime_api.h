// <cuda_runtime_api.h>: what a kernel needs of it is there without any #include.
