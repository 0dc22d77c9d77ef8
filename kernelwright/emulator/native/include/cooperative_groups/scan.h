// <cooperative_groups/scan.h>: see kwemu/cooperative_groups.h.
#include <cooperative_groups.h>
