// threadIdx and its kin. Macros over const functions: reading one is no load from memory,
// and an index that a kernel does not use costs nothing.
#ifndef KWEMU_INDICES_H
#define KWEMU_INDICES_H

#define threadIdx (uint3{kwemu_thread_x(), kwemu_thread_y(), kwemu_thread_z()})
#define blockIdx (uint3{kwemu_block_x(), kwemu_block_y(), kwemu_block_z()})
#define blockDim (dim3(kwemu_block_dim_x(), kwemu_block_dim_y(), kwemu_block_dim_z()))
#define gridDim (dim3(kwemu_grid_dim_x(), kwemu_grid_dim_y(), kwemu_grid_dim_z()))
constexpr int warpSize = 32;

#endif  // KWEMU_INDICES_H
