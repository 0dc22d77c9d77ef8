// <cooperative_groups/memcpy_async.h>: see kwemu/cooperative_groups.h.
#include <cooperative_groups.h>
