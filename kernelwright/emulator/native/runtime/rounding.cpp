// Arithmetic with a rounding that is named, for __fadd_rz and its kin. Here and not in a
// header: a kernel is never preempted inside the runtime, so the mode cannot leak.
#include <cfenv>
#include <cmath>

#include "kwemu/abi.h"

namespace {

constexpr int kModes[] = {FE_TONEAREST, FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO};

template <class T>
T rounded(int operation, int mode, T a, T b, T c) {
    // Volatile: the operation may move neither before nor after the mode's change.
    volatile T x = a, y = b, z = c, result = 0;
    if (mode != 0) fesetround(kModes[mode]);
    switch (operation) {
        case 0:
            result = x + y;
            break;
        case 1:
            result = x - y;
            break;
        case 2:
            result = x * y;
            break;
        case 3:
            result = x / y;
            break;
        case 4:
            result = std::fma(x, y, z);
            break;
        default:
            result = std::sqrt(x);
            break;
    }
    if (mode != 0) fesetround(FE_TONEAREST);
    return result;
}

}  // namespace

extern "C" float kwemu_round_float(int operation, int mode, float a, float b, float c) {
    return rounded<float>(operation, mode, a, b, c);
}

extern "C" double kwemu_round_double(int operation, int mode, double a, double b,
                                     double c) {
    return rounded<double>(operation, mode, a, b, c);
}
