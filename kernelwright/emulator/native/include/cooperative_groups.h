// <cooperative_groups.h>: see kwemu/cooperative_groups.h.
#ifndef KWEMU_OPEN_COOPERATIVE_GROUPS_H
#define KWEMU_OPEN_COOPERATIVE_GROUPS_H
namespace cooperative_groups = kwemu_cg;
#endif
