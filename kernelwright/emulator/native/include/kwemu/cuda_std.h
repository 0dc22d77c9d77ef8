// cuda::std is the host's standard library here.
#ifndef KWEMU_CUDA_STD_H
#define KWEMU_CUDA_STD_H
namespace cuda {
namespace std = ::std;
}
#endif
