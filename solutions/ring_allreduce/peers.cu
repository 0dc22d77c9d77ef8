// Collectives of ranks that reach each other's memory. Each rank is a GPU (or a process
// on one) with a box that all others write into, and a page of signs beside it.
//
// A sign has 64 bits: what is called (kind) above how far it has come (count). A block
// writes numbers into a box, meets at a barrier, and one of its threads calls
// __threadfence_system() and then sets the sign; who has seen the sign calls it, and a
// barrier lets the others of its block read. So numbers are there when their sign is.
//
// one_shot:  a small message goes whole to all, and each sums for itself, in the order
//            of ranks. One wait.
// two_shot:  of a large one, segment r goes to rank r, which sums it and sends the sum to
//            all; chunk by chunk, so that while one is summed the next is on its way.
//            Each block has its own chunks, slots and signs, and waits for the same
//            block of the other ranks alone. A rank sends 2 (n - 1) / n of the message.
//
// Nobody says when a slot is free: what a rank has received tells it. A block sends chunk
// t + 1 after sums t - 2 of all ranks have come, for which they have read chunk t - 2;
// and sums t after chunk t has come from all, which they sent after they read sums t - 3.
// So four slots are enough. Between launches: who begins a call has ended the one before,
// and its signs say that it began; two boxes by turns are enough for small messages.
//
// All blocks of all ranks have to run at once.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

constexpr int THREADS = 512, UNROLL = 4, SLOTS = 4;
constexpr int PART = THREADS * UNROLL;  // packs
constexpr int SUM = 0, AVG = 1, PRODUCT = 2, MIN = 3, MAX = 4;
constexpr unsigned long long LOST = 1, DIFFERS = 2;
constexpr int BETWEEN =
    1024;  // looks at a sign, between two at the host's memory

struct alignas(16) Pack {
    unsigned word[4];
};

// In what type numbers are combined.
template <class T>
struct Wide {
    using type = T;
};
template <>
struct Wide<__half> {
    using type = float;
};
template <>
struct Wide<__nv_bfloat16> {
    using type = float;
};

__device__ float widen(__half x) {
    return __half2float(x);
}
__device__ float widen(__nv_bfloat16 x) {
    return __bfloat162float(x);
}
template <class T>
__device__ T widen(T x) {
    return x;
}

template <class T>
__device__ T narrow(typename Wide<T>::type x) {
    return x;
}
template <>
__device__ __half narrow<__half>(float x) {
    return __float2half_rn(x);
}
template <>
__device__ __nv_bfloat16 narrow<__nv_bfloat16>(float x) {
    return __float2bfloat16_rn(x);
}

// NaN wins, as in torch.
template <int OP, class W>
__device__ W combine(W a, W b) {
    if (OP == PRODUCT) return a * b;
    if (OP == MIN) return a != a || a < b ? a : b;
    if (OP == MAX) return a != a || a > b ? a : b;
    return a + b;
}

// The numbers of a pack. `count` of them are in memory, from `from` on.
template <class T>
union Numbers {
    Pack pack;
    T of[16 / sizeof(T)];
    __device__ Numbers() : pack() {}
};

// Number by number: the end of a message, or one that begins at an odd place.
template <class T>
__noinline__ __device__ Pack load_some(const T* from, long long count) {
    constexpr int WIDTH = 16 / sizeof(T);
    Numbers<T> some;
    for (int i = 0; i < WIDTH; ++i)
        if (i < count) some.of[i] = from[i];
    return some.pack;
}

template <class T>
__noinline__ __device__ void store_some(T* to, long long count,
                                        Pack pack) {
    constexpr int WIDTH = 16 / sizeof(T);
    Numbers<T> some;
    some.pack = pack;
    for (int i = 0; i < WIDTH; ++i)
        if (i < count) to[i] = some.of[i];
}

template <class T>
__device__ bool whole(const T* at, long long count) {
    return count >= static_cast<long long>(16 / sizeof(T)) &&
           reinterpret_cast<size_t>(at) % 16 == 0;
}

template <class T>
__device__ Pack load(const T* from, long long count) {
    return whole(from, count) ? *reinterpret_cast<const Pack*>(from)
                              : load_some(from, count);
}

template <class T>
__device__ void store(T* to, long long count, Pack pack) {
    if (whole(to, count))
        *reinterpret_cast<Pack*>(to) = pack;
    else
        store_some(to, count, pack);
}

// The sum of a pack of all ranks, in their order, rounded once. `slot` is where
// rank 0's chunk lies; the others' follow it, each `stride` packs further.
template <class T, int OP>
__device__ Pack over_ranks(Pack own, const Pack* slot, long long stride,
                           int rank, int ranks) {
    constexpr int WIDTH = 16 / sizeof(T);
    using W = typename Wide<T>::type;
    W sums[WIDTH];
    for (int r = 0; r < ranks; ++r) {
        Numbers<T> part;
        part.pack = r == rank ? own : slot[r * stride];
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) {
            const W number = widen(part.of[i]);
            sums[i] = r ? combine<OP>(sums[i], number) : number;
        }
    }
    Numbers<T> out;
#pragma unroll
    for (int i = 0; i < WIDTH; ++i)
        out.of[i] = narrow<T>(OP == AVG ? sums[i] / static_cast<W>(ranks)
                                        : sums[i]);
    return out.pack;
}

// A thread's packs of a part: THREADS apart, and `left` numbers are there from the first
// on. All of them are asked for before any is written: a store lets no load pass.
template <class T, class F>
__device__ void for_each(long long left, F&& of_one) {
    constexpr int WIDTH = 16 / sizeof(T);
#pragma unroll
    for (int u = 0; u < UNROLL; ++u)
        if (u * THREADS * WIDTH < left) of_one(u, u * THREADS * WIDTH);
}

template <class T>
__device__ void load_each(Pack (&packs)[UNROLL], const T* from,
                          long long left) {
    for_each<T>(
        left, [&](int u, int i) { packs[u] = load(from + i, left - i); });
}

template <class T>
__device__ void store_each(T* to, long long left,
                           const Pack (&packs)[UNROLL]) {
    for_each<T>(left,
                [&](int u, int i) { store(to + i, left - i, packs[u]); });
}

// The same in a box, whose packs are whole.
template <class T>
__device__ void read_each(Pack (&packs)[UNROLL], const Pack* from,
                          long long left) {
    for_each<T>(left, [&](int u, int) { packs[u] = from[u * THREADS]; });
}

template <class T>
__device__ void write_each(Pack* to, const Pack (&packs)[UNROLL],
                           long long left) {
    for_each<T>(left, [&](int u, int) { to[u * THREADS] = packs[u]; });
}

template <class T, int OP>
__device__ void sum_each(Pack (&packs)[UNROLL], const Pack* slot,
                         long long left, long long stride, int rank,
                         int ranks) {
    for_each<T>(left, [&](int u, int) {
        packs[u] = over_ranks<T, OP>(packs[u], slot + u * THREADS, stride,
                                     rank, ranks);
    });
}

// Set a sign in all other ranks' pages; what this block wrote before is there first.
__device__ void tell(unsigned long long* const* signs, long long place,
                     unsigned kind, unsigned count, int rank, int ranks) {
    __syncthreads();
    const int peer = threadIdx.x;
    if (peer < ranks && peer != rank) {
        __threadfence_system();
        atomicExch_system(
            signs[peer] + place,
            static_cast<unsigned long long>(kind) << 32 | count);
    }
}

// Wait until each other rank's sign has come to `count`; thread p waits for rank p.
// A sign of another kind, or none within `limit` clocks or until the host says that a
// process has ended (trouble[1]), is told to the host (trouble[0]: what, who, the kind
// of call), and that rank is not waited for again.
__device__ void await(unsigned long long* const* signs, long long place,
                      long long a_rank, unsigned kind, unsigned count,
                      int rank, int ranks,
                      volatile unsigned long long* trouble,
                      long long limit, bool& given_up) {
    const int peer = threadIdx.x;
    if (peer < ranks && peer != rank && !given_up) {
        unsigned long long* sign = signs[rank] + place + peer * a_rank;
        const long long begun = clock64();
        unsigned looks = 0;
        unsigned long long seen = atomicAdd_system(sign, 0ull);
        while (static_cast<int>(static_cast<unsigned>(seen) - count) < 0 &&
               !given_up) {
            given_up = clock64() - begun > limit ||
                       (++looks % BETWEEN == 0 && trouble[1]);
            seen = atomicAdd_system(sign, 0ull);
        }
        const bool differs = !given_up && seen >> 32 != kind;
        if (given_up || differs) {
            given_up = true;
            trouble[0] = (differs ? DIFFERS : LOST) << 56 |
                         static_cast<unsigned long long>(peer) << 32 |
                         kind;
        }
        __threadfence_system();
    }
    __syncthreads();
}

// Places of signs: by sort, by the rank that sets it, by block.
__device__ long long page(int sort, int ranks) {
    return static_cast<long long>(sort) * ranks * gridDim.x;
}

// out = the ranks' x combined; n numbers. `boxes[r]` is rank r's, [ranks][room] packs,
// and `signs[r]` its page of [ranks][blocks]; the caller takes two of each by turns.
template <class T, int OP>
__global__ void __launch_bounds__(THREADS, 1)
    one_shot(Pack* const* boxes, unsigned long long* const* signs,
             unsigned long long* trouble, const T* x, T* out, long long n,
             long long room, int rank, int ranks, unsigned kind,
             unsigned count, long long limit) {
    constexpr int WIDTH = 16 / sizeof(T);
    const long long packs = (n + WIDTH - 1) / WIDTH;
    bool given_up = false;
    const long long first = blockIdx.x * PART + threadIdx.x;
    const long long stride = static_cast<long long>(gridDim.x) * PART;
    for (long long at = first; at < packs; at += stride) {
        const long long left = n - at * WIDTH;
        Pack own[UNROLL];
        load_each(own, x + at * WIDTH, left);
        for (int step = 1; step < ranks; ++step)
            write_each<T>(boxes[(rank + step) % ranks] + rank * room + at,
                          own, left);
    }
    tell(signs, rank * gridDim.x + blockIdx.x, kind, count, rank, ranks);
    await(signs, blockIdx.x, gridDim.x, kind, count, rank, ranks, trouble,
          limit, given_up);
    for (long long at = first; at < packs; at += stride) {
        const long long left = n - at * WIDTH;
        Pack sums[UNROLL];
        load_each(sums, x + at * WIDTH, left);
        sum_each<T, OP>(sums, boxes[rank] + at, left, room, rank, ranks);
        store_each(out + at * WIDTH, left, sums);
    }
}

// What a launch of two_shot does with its segments.
constexpr int REDUCES = 1, GATHERS = 2;

// Segment s of a message has `segment` numbers from s * segment on, of n altogether; of
// a broadcast (root >= 0) there is one, the whole message.
//   ALL = REDUCES | GATHERS:  x, out: (n)          out = the ranks' x combined
//   REDUCES:                  x: (n), out: its own segment of the sum
//   GATHERS:                  x: its own segment, out: (n)
// A chunk has `parts` parts: its sign and its waiting are shared by so many.
// `boxes[r]` holds twice `room` packs, for chunks and for sums, each of them
// [blocks][SLOTS][ranks][parts * PART]; `signs[r]` [2][ranks][blocks]. Where a half is
// left out, its signs still travel. Launches may differ in `parts`, not in blocks.
template <class T, int OP, int DOES>
__global__ void __launch_bounds__(THREADS, 1)
    two_shot(Pack* const* boxes, unsigned long long* const* signs,
             unsigned long long* trouble, const T* x, T* out, long long n,
             long long segment, long long room, int parts, int root,
             int rank, int ranks, unsigned kind, unsigned count,
             long long limit) {
    constexpr int WIDTH = 16 / sizeof(T);
    const long long chunk = static_cast<long long>(parts) * PART;
    const long long a_slot = ranks * chunk;
    const long long chunks_at = blockIdx.x * SLOTS * a_slot;
    const long long sums_at = room + chunks_at;
    const long long packs = (segment + WIDTH - 1) / WIDTH;
    const long long chunks = (packs + chunk - 1) / chunk;
    const int rounds =
        static_cast<int>((chunks + gridDim.x - 1) / gridDim.x);
    const long long mine = page(0, ranks) + rank * gridDim.x + blockIdx.x;
    const long long theirs = page(0, ranks) + blockIdx.x;
    const long long sums = page(1, ranks);
    const T* own_x = DOES & REDUCES ? x + rank * segment : x;
    T* own_out = DOES & GATHERS && root < 0 ? out + rank * segment : out;
    bool given_up = false;

    const auto length = [&](int s) {
        const long long left = n - (root >= 0 ? 0 : s * segment);
        return left < segment ? left : segment;
    };
    // This thread's first number of a part in a segment, and where rank r's pack of it
    // lies in a box, behind `chunks_at` or `sums_at` and r's chunk.
    const auto begin = [&](int round, int part) {
        const long long before =
            static_cast<long long>(round) * gridDim.x + blockIdx.x;
        return (before * chunk + part * PART + threadIdx.x) * WIDTH;
    };
    const auto slot = [&](int round, int part) {
        return round % SLOTS * a_slot + part * PART + threadIdx.x;
    };

    const auto scatter = [&](int round) {
        for (int part = 0; DOES & REDUCES && part < parts; ++part) {
            const long long at = begin(round, part);
            const long long to =
                chunks_at + slot(round, part) + rank * chunk;
            for (int step = 1; step < ranks; ++step) {
                const int peer = (rank + step) % ranks;
                const long long left = length(peer) - at;
                Pack packs[UNROLL];
                load_each(packs, x + peer * segment + at, left);
                write_each<T>(boxes[peer] + to, packs, left);
            }
        }
        tell(signs, mine, kind, count + round + 1, rank, ranks);
    };
    const auto reduce = [&](int round) {
        for (int part = 0; (root < 0 || root == rank) && part < parts;
             ++part) {
            const long long at = begin(round, part);
            const long long left = length(rank) - at;
            const Pack* got = boxes[rank] + chunks_at + slot(round, part);
            const long long to =
                sums_at + slot(round, part) + rank * chunk;
            Pack packs[UNROLL];
            load_each(packs, own_x + at, left);
            if (DOES & REDUCES)
                sum_each<T, OP>(packs, got, left, chunk, rank, ranks);
            store_each(own_out + at, left, packs);
            for (int step = 1; DOES & GATHERS && step < ranks; ++step)
                write_each<T>(boxes[(rank + step) % ranks] + to, packs,
                              left);
        }
        tell(signs, sums + mine, kind, count + round + 1, rank, ranks);
    };
    const auto keep = [&](int round) {
        await(signs, sums + theirs, gridDim.x, kind, count + round + 1,
              rank, ranks, trouble, limit, given_up);
        for (int part = 0; DOES & GATHERS && part < parts; ++part) {
            const long long at = begin(round, part);
            for (int step = 1; step < ranks; ++step) {
                const int peer = (rank + step) % ranks;
                if (root >= 0 && peer != root) continue;
                const long long left = length(peer) - at;
                const Pack* got = boxes[rank] + sums_at +
                                  slot(round, part) + peer * chunk;
                Pack packs[UNROLL];
                read_each<T>(packs, got, left);
                store_each(out + (root >= 0 ? 0 : peer * segment) + at,
                           left, packs);
            }
        }
    };

    // Three rounds at a time: one leaves, one is summed, one is kept.
    for (int round = 0; rounds && round < rounds + 2; ++round) {
        if (round < rounds) scatter(round);
        if (round > 0 && round <= rounds) {
            await(signs, theirs, gridDim.x, kind, count + round, rank,
                  ranks, trouble, limit, given_up);
            reduce(round - 1);
        }
        if (round > 1) keep(round - 2);
    }
}
