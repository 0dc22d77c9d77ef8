#ifndef KWEMU_FLOAT_MATH_H
#define KWEMU_FLOAT_MATH_H
#endif
