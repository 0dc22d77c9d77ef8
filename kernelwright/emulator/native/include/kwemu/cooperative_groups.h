// cooperative_groups: blocks, tiles of up to a warp, coalesced groups, reduce and scan.
// <cooperative_groups.h> and its companions open the namespace.
#ifndef KWEMU_COOPERATIVE_GROUPS_H
#define KWEMU_COOPERATIVE_GROUPS_H

namespace kwemu_cg {

inline unsigned kwemu_rank_in_block() {
    return kwemu_thread_x() +
           kwemu_block_dim_x() *
               (kwemu_thread_y() + kwemu_block_dim_y() * kwemu_thread_z());
}
inline unsigned kwemu_block_size() {
    return kwemu_block_dim_x() * kwemu_block_dim_y() * kwemu_block_dim_z();
}
inline unsigned kwemu_lanes_below() {
    return (1u << kwemu_lane()) - 1;
}

// A value of any trivial type, eight bytes at a time.
template <class T>
inline T kwemu_shuffle_any(unsigned mask, T value, unsigned lane, int line) {
    static_assert(std::is_trivially_copyable<T>::value,
                  "a shuffled value is copied bitwise");
    for (size_t at = 0; at < sizeof(T); at += 8) {
        size_t size = sizeof(T) - at < 8 ? sizeof(T) - at : 8;
        unsigned long long bits = 0;
        char* place = reinterpret_cast<char*>(&value) + at;
        memcpy(&bits, place, size);
        bits = kwemu_shuffle(mask, bits, lane, line);
        memcpy(place, &bits, size);
    }
    return value;
}

// The lane of the rank-th thread of a mask.
inline unsigned kwemu_lane_of(unsigned mask, unsigned rank) {
    while (rank--) mask &= mask - 1;
    return mask ? static_cast<unsigned>(__builtin_ctz(mask)) : kwemu_lane();
}

// ---- groups ----------------------------------------------------------------------------

// Any group: the whole block, or the lanes of a mask.
class thread_group {
  public:
    void sync(KWEMU_LINE) const {
        if (is_block_) {
            kwemu_barrier(line);
        } else {
            kwemu_meet(mask_, KWEMU_GROUP, nullptr, kwemu_nothing, line);
        }
    }
    unsigned size() const {
        return is_block_ ? kwemu_block_size() : static_cast<unsigned>(__popc(mask_));
    }
    unsigned num_threads() const { return size(); }
    unsigned thread_rank() const {
        return is_block_ ? kwemu_rank_in_block()
                         : static_cast<unsigned>(__popc(mask_ & kwemu_lanes_below()));
    }

  protected:
    thread_group(bool is_block, unsigned mask) : is_block_(is_block), mask_(mask) {}
    bool is_block_;
    unsigned mask_;
    friend thread_group tiled_partition(const thread_group& parent, unsigned size);
};

class thread_block : public thread_group {
  public:
    static dim3 group_index() { return blockIdx; }
    static dim3 thread_index() { return threadIdx; }
    static dim3 group_dim() { return blockDim; }
    static dim3 dim_threads() { return blockDim; }

  private:
    thread_block() : thread_group(true, 0) {}
    friend thread_block this_thread_block();
};
inline thread_block this_thread_block() {
    return {};
}

// What tiles and coalesced groups share: the lanes of one warp, known by their mask.
class kwemu_lanes : public thread_group {
  public:
    int any(int predicate, KWEMU_LINE) const {
        return kwemu_ballot(mask_, predicate, line) != 0;
    }
    int all(int predicate, KWEMU_LINE) const {
        return kwemu_ballot(mask_, !predicate, line) == 0;
    }
    unsigned ballot(int predicate, KWEMU_LINE) const {
        return pack(kwemu_ballot(mask_, predicate, line));
    }
    template <class T>
    unsigned match_any(T value, KWEMU_LINE) const {
        return pack(kwemu_match(mask_, kwemu_bits_of(value), 0, line));
    }
    template <class T>
    unsigned match_all(T value, int& all, KWEMU_LINE) const {
        unsigned same = kwemu_match(mask_, kwemu_bits_of(value), 1, line);
        all = same != 0;
        return pack(same);
    }
    template <class T>
    T shfl(T value, unsigned rank, KWEMU_LINE) const {
        return kwemu_shuffle_any(mask_, value, kwemu_lane_of(mask_, rank % size()),
                                 line);
    }
    template <class T>
    T shfl_up(T value, unsigned delta, KWEMU_LINE) const {
        unsigned rank = thread_rank();
        unsigned from = rank >= delta ? rank - delta : rank;
        return kwemu_shuffle_any(mask_, value, kwemu_lane_of(mask_, from), line);
    }
    template <class T>
    T shfl_down(T value, unsigned delta, KWEMU_LINE) const {
        unsigned rank = thread_rank();
        unsigned from = rank + delta < size() ? rank + delta : rank;
        return kwemu_shuffle_any(mask_, value, kwemu_lane_of(mask_, from), line);
    }
    unsigned kwemu_mask() const { return mask_; }

  protected:
    explicit kwemu_lanes(unsigned mask) : thread_group(false, mask) {}

  private:
    // A vote by ranks in the group, where the warp's is by lanes.
    unsigned pack(unsigned lanes) const {
        unsigned packed = 0, rank = 0;
        for (unsigned rest = mask_; rest; rest &= rest - 1, ++rank)
            packed |= (lanes >> __builtin_ctz(rest) & 1) << rank;
        return packed;
    }
};

class coalesced_group : public kwemu_lanes {
  public:
    explicit coalesced_group(unsigned mask, unsigned rank = 0, unsigned count = 1)
        : kwemu_lanes(mask), rank_(rank), count_(count) {}
    unsigned meta_group_rank() const { return rank_; }
    unsigned meta_group_size() const { return count_; }

  private:
    unsigned rank_, count_;
};
inline coalesced_group coalesced_threads(KWEMU_LINE) {
    return coalesced_group(kwemu_activemask(line));
}

template <unsigned Size, class Parent = void>
class thread_block_tile;

template <unsigned Size>
class thread_block_tile<Size, void> : public kwemu_lanes {
    static_assert(Size <= 32, "tiles larger than a warp run on a GPU only");
    static_assert((Size & (Size - 1)) == 0 && Size > 0,
                  "a tile's size is a power of two");

  public:
    thread_block_tile(unsigned rank, unsigned count)
        : kwemu_lanes(mask_of_lane()), rank_(rank), count_(count) {}
    static constexpr unsigned size() { return Size; }
    static constexpr unsigned num_threads() { return Size; }
    unsigned thread_rank() const { return kwemu_lane() & (Size - 1); }
    unsigned meta_group_rank() const { return rank_; }
    unsigned meta_group_size() const { return count_; }
    template <class T>
    T shfl(T value, unsigned rank, KWEMU_LINE) const {
        return kwemu_shuffle_any(mask_, value, base() | (rank & (Size - 1)), line);
    }
    template <class T>
    T shfl_xor(T value, unsigned lanes, KWEMU_LINE) const {
        unsigned from = thread_rank() ^ lanes;
        return kwemu_shuffle_any(mask_, value,
                                 from < Size ? base() | from : kwemu_lane(), line);
    }

  private:
    static unsigned base() { return kwemu_lane() & ~(Size - 1); }
    static unsigned mask_of_lane() {
        return Size == 32 ? 0xffffffffu : ((1u << (Size & 31)) - 1) << base();
    }
    unsigned rank_, count_;
};

template <unsigned Size, class Parent>
class thread_block_tile : public thread_block_tile<Size, void> {
  public:
    using thread_block_tile<Size, void>::thread_block_tile;
};

template <unsigned Size>
inline thread_block_tile<Size, thread_block> tiled_partition(
    const thread_block& block) {
    return {block.thread_rank() / Size, (block.size() + Size - 1) / Size};
}
template <unsigned Size, unsigned Outer, class Parent>
inline thread_block_tile<Size, thread_block_tile<Outer, Parent>> tiled_partition(
    const thread_block_tile<Outer, Parent>& tile) {
    static_assert(Size <= Outer, "a tile's tile is no larger than it");
    return {tile.thread_rank() / Size, Outer / Size};
}
inline thread_group tiled_partition(const thread_group& parent, unsigned size) {
    unsigned lanes = parent.is_block_ ? 0xffffffffu : parent.mask_;
    unsigned first = parent.thread_rank() / size * size;
    if (parent.is_block_) first &= 31;
    unsigned mask = 0;
    for (unsigned i = 0; i < size && first + i < static_cast<unsigned>(__popc(lanes));
         ++i)
        mask |= 1u << kwemu_lane_of(lanes, first + i);
    return thread_group(false, mask);
}

template <class Label>
inline coalesced_group labeled_partition(const kwemu_lanes& group, Label label,
                                         KWEMU_LINE) {
    unsigned mask = kwemu_match(group.kwemu_mask(), kwemu_bits_of(label), 0, line);
    return coalesced_group(mask);
}
inline coalesced_group binary_partition(const kwemu_lanes& group, bool which,
                                        KWEMU_LINE) {
    unsigned yes = kwemu_ballot(group.kwemu_mask(), which, line);
    return coalesced_group(which ? yes : group.kwemu_mask() & ~yes, which, 2);
}

class grid_group {
  public:
    static dim3 group_dim() { return gridDim; }
    static dim3 dim_blocks() { return gridDim; }
    static dim3 block_index() { return blockIdx; }
    static unsigned long long num_blocks() {
        return static_cast<unsigned long long>(kwemu_grid_dim_x()) *
               kwemu_grid_dim_y() * kwemu_grid_dim_z();
    }
    static unsigned long long block_rank() {
        return kwemu_block_x() + static_cast<unsigned long long>(kwemu_grid_dim_x()) *
                                     (kwemu_block_y() + static_cast<unsigned long long>(
                                                            kwemu_grid_dim_y()) *
                                                            kwemu_block_z());
    }
    static unsigned long long size() { return num_blocks() * kwemu_block_size(); }
    static unsigned long long num_threads() { return size(); }
    static unsigned long long thread_rank() {
        return block_rank() * kwemu_block_size() + kwemu_rank_in_block();
    }
    static bool is_valid() { return false; }
    static void sync(KWEMU_LINE) {
        kwemu_misuse(
            "called grid.sync(), which needs all blocks at once: it runs on a GPU only",
            line);
    }
};
inline grid_group this_grid() {
    return {};
}

template <class Group>
inline void sync(const Group& group, KWEMU_LINE) {
    group.sync(line);
}
template <class Group>
inline auto thread_rank(const Group& group) {
    return group.thread_rank();
}
template <class Group>
inline auto group_size(const Group& group) {
    return group.size();
}

// ---- reduce and scan -------------------------------------------------------------------

#define KWEMU_FUNCTOR(name, expression) \
    template <class T>                  \
    struct name {                       \
        T operator()(T a, T b) const {  \
            return expression;          \
        }                               \
    };
KWEMU_FUNCTOR(plus, a + b)
KWEMU_FUNCTOR(less, b < a ? b : a)
KWEMU_FUNCTOR(greater, a < b ? b : a)
KWEMU_FUNCTOR(bit_and, a& b)
KWEMU_FUNCTOR(bit_or, a | b)
KWEMU_FUNCTOR(bit_xor, a ^ b)
#undef KWEMU_FUNCTOR

template <class T, class Operation>
struct kwemu_contribution {
    T value;
    Operation* operation;
};

template <class Group, class T, class Operation>
inline T reduce(const Group& group, T value, Operation operation, KWEMU_LINE) {
    using Own = kwemu_contribution<T, Operation>;
    Own own{value, &operation};
    kwemu_meet(
        group.kwemu_mask(), KWEMU_GROUP_FOLD, &own,
        [](void** lanes, unsigned present) {
            Own* all[32];
            int count = 0;
            for (unsigned rest = present; rest; rest &= rest - 1)
                all[count++] = static_cast<Own*>(lanes[__builtin_ctz(rest)]);
            T values[32];
            for (int i = 0; i < count; ++i) values[i] = all[i]->value;
            // A tree, as shuffles would do it: rounding errors stay as small as there.
            for (int left = count; left > 1; left = (left + 1) / 2)
                for (int i = 0; i < left / 2; ++i)
                    values[i] =
                        (*all[0]->operation)(values[i], values[i + (left + 1) / 2]);
            for (int i = 0; i < count; ++i) all[i]->value = values[0];
        },
        line);
    return own.value;
}

template <bool inclusive, class Group, class T, class Operation>
inline T kwemu_scan(const Group& group, T value, Operation operation, int line) {
    using Own = kwemu_contribution<T, Operation>;
    Own own{value, &operation};
    kwemu_meet(
        group.kwemu_mask(), KWEMU_GROUP_FOLD, &own,
        [](void** lanes, unsigned present) {
            T sum{};
            bool first = true;
            for (unsigned rest = present; rest; rest &= rest - 1) {
                Own* lane = static_cast<Own*>(lanes[__builtin_ctz(rest)]);
                T next = first ? lane->value : (*lane->operation)(sum, lane->value);
                lane->value = inclusive ? next : sum;
                sum = next;
                first = false;
            }
        },
        line);
    return own.value;
}
template <class Group, class T, class Operation>
inline T inclusive_scan(const Group& group, T value, Operation operation, KWEMU_LINE) {
    return kwemu_scan<true>(group, value, operation, line);
}
template <class Group, class T>
inline T inclusive_scan(const Group& group, T value, KWEMU_LINE) {
    return kwemu_scan<true>(group, value, plus<T>{}, line);
}
template <class Group, class T, class Operation>
inline T exclusive_scan(const Group& group, T value, Operation operation, KWEMU_LINE) {
    return kwemu_scan<false>(group, value, operation, line);
}
template <class Group, class T>
inline T exclusive_scan(const Group& group, T value, KWEMU_LINE) {
    return kwemu_scan<false>(group, value, plus<T>{}, line);
}

// ---- asynchronous copies of a group ----------------------------------------------------

template <class Group>
inline void memcpy_async(const Group& group, void* to, const void* from, size_t size,
                         KWEMU_LINE) {
    size_t step = static_cast<size_t>(group.size()) * 16;
    for (size_t at = group.thread_rank() * 16; at < size; at += step) {
        unsigned part = static_cast<unsigned>(size - at < 16 ? size - at : 16);
        kwemu_copy_async(static_cast<char*>(to) + at,
                         static_cast<const char*>(from) + at, part, part, line);
    }
    kwemu_copy_commit();
}
template <unsigned Newest, class Group>
inline void wait_prior(const Group& group, KWEMU_LINE) {
    kwemu_copy_wait(Newest);
    group.sync(line);
}
template <class Group>
inline void wait(const Group& group, KWEMU_LINE) {
    kwemu_copy_wait(0);
    group.sync(line);
}

}  // namespace kwemu_cg

#endif  // KWEMU_COOPERATIVE_GROUPS_H
