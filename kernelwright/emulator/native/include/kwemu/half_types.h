#ifndef KWEMU_HALF_TYPES_H
#define KWEMU_HALF_TYPES_H
#endif
