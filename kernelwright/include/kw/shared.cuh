// Where something lies in shared memory. On a GPU that is 32 bits, and an offset that the
// compiler knows costs nothing: it is part of the instruction.
//
//   kw::Shared tile = kw::shared_address(memory);
//   kw::ldmatrix(x, tile + 128 * row);          // offsets are bytes
#pragma once

namespace kw {

#ifdef __CUDACC__

struct Shared {
    unsigned at;
};

__device__ __forceinline__ Shared shared_address(const void* pointer) {
    return {static_cast<unsigned>(__cvta_generic_to_shared(pointer))};
}

__device__ __forceinline__ Shared operator+(Shared place, int bytes) {
    return {place.at + bytes};
}

#else  // the emulator

struct Shared {
    char* at;
};

inline Shared shared_address(const void* pointer) {
    return {static_cast<char*>(const_cast<void*>(pointer))};
}

inline Shared operator+(Shared place, int bytes) {
    return {place.at + bytes};
}

#endif

}  // namespace kw
