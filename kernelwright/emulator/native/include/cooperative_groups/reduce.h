// <cooperative_groups/reduce.h>: see kwemu/cooperative_groups.h.
#include <cooperative_groups.h>
