// cp_async_wait<1> leaves the newest *group* open, and the kernel makes no group where
// it has nothing left to fetch: at the end of k the newest group is the very one that is
// needed. An empty group costs nothing and keeps the count.

// [exercise:stale_stage]
#include <kw/tiles.cuh>

constexpr int DEPTH = 64, STAGES = 3, TILE = 128 * DEPTH;

__device__ void fetch(half* stages, int t, const half* a, const half* b,
                      int n, int k) {
    half* stage = stages + t % STAGES * 2 * TILE;
    a += blockIdx.y * 128 * k + t * DEPTH;
    b += blockIdx.x * 128 + t * DEPTH * n;
    kw::copy_tile_async<128, DEPTH>(stage, a, k, kw::swizzled);
    kw::copy_tile_async<DEPTH, 128>(stage + TILE, b, n, kw::swizzled);
}

// Launch: grid (n / 128, m / 128), block 128, 98,304 bytes of dynamic shared
// memory. k: a multiple of 64.
__global__ void __launch_bounds__(128, 2)
    stale_stage(const half* a, const half* b, float* c, int m, int n,
                int k) {
    extern __shared__ __align__(128) half stages[];
    float sum[4][8][4] = {};
    int steps = k / DEPTH;
    // [hole]
    // [broken]
    // for (int t = 0; t < STAGES - 1 && t < steps; ++t) {
    //     fetch(stages, t, a, b, n, k);
    //     kw::cp_async_commit();
    // }
    // for (int t = 0; t < steps; ++t) {
    //     kw::cp_async_wait<STAGES - 2>();
    //     __syncthreads();
    //     if (t + STAGES - 1 < steps) {
    //         fetch(stages, t + STAGES - 1, a, b, n, k);
    //         kw::cp_async_commit();
    //     }
    //     half* ready = stages + 2 * TILE * (t % STAGES);
    //     kw::multiply_tiles(sum, ready, &ready[TILE]);
    // }
    // [/broken]
    for (int t = 0; t < STAGES - 1; ++t) {
        if (t < steps) fetch(stages, t, a, b, n, k);
        kw::cp_async_commit();
    }
    for (int t = 0; t < steps; ++t) {
        kw::cp_async_wait<STAGES - 2>();
        __syncthreads();
        if (t + STAGES - 1 < steps) {
            fetch(stages, t + STAGES - 1, a, b, n, k);
        }
        kw::cp_async_commit();  // an empty group near the end
        half* ready = stages + 2 * TILE * (t % STAGES);
        kw::multiply_tiles(sum, ready, &ready[TILE]);
    }
    // [/hole]
    c += blockIdx.y * 128 * n + blockIdx.x * 128;
    kw::store_tile(c, sum, n);
}
// [/exercise]
