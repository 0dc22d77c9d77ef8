// All-reduce round a ring of MPI's ranks: the C++ twin of ring.py.
//
//     mpiexec -n 4 ./ring NUMBERS naive|ordered|sendrecv [OUT]
#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

enum class Way { naive, ordered, sendrecv };

struct Segment {
    float* first;
    int count;
};

// Sends to the right neighbour and receives from the left one.
void exchange(Segment out, Segment in, Way way, int rank, int size) {
    const int right = (rank + 1) % size, left = (rank + size - 1) % size;
    const MPI_Comm comm = MPI_COMM_WORLD;
    if (way == Way::sendrecv) {
        MPI_Sendrecv(out.first, out.count, MPI_FLOAT, right, 0, in.first,
                     in.count, MPI_FLOAT, left, 0, comm,
                     MPI_STATUS_IGNORE);
    } else if (way == Way::naive || rank % 2 == 0) {
        // MPI_Send returns when the message may be changed again: at once
        // while MPI has room to keep it, else when it is received.
        MPI_Send(out.first, out.count, MPI_FLOAT, right, 0, comm);
        MPI_Recv(in.first, in.count, MPI_FLOAT, left, 0, comm,
                 MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(in.first, in.count, MPI_FLOAT, left, 0, comm,
                 MPI_STATUS_IGNORE);
        MPI_Send(out.first, out.count, MPI_FLOAT, right, 0, comm);
    }
}

// In step t rank r sends segment r - t - 1 and receives segment r - t - 2.
void all_reduce(std::vector<float>& x, Way way, int rank, int size) {
    const auto bound = [&](int r) {
        return static_cast<std::size_t>(
            static_cast<std::int64_t>(x.size()) * r / size);
    };
    const auto segment = [&](int s) {
        s = (s % size + size) % size;
        const std::size_t first = bound(s);
        return Segment{x.data() + first,
                       static_cast<int>(bound(s + 1) - first)};
    };
    std::vector<float> room(x.size() / size + 1);
    for (int step = 0; step < 2 * (size - 1); ++step) {
        const Segment out = segment(rank - step - 1);
        const Segment mine = segment(rank - step - 2);
        if (step < size - 1) {
            exchange(out, {room.data(), mine.count}, way, rank, size);
            for (int i = 0; i < mine.count; ++i) mine.first[i] += room[i];
        } else {
            exchange(out, mine, way, rank, size);
        }
    }
}

// Multiples of 2^-24 that differ from place to place.
std::vector<float> given(int rank, std::size_t count) {
    std::vector<float> x(count);
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint32_t mixed =
            static_cast<std::uint32_t>(i) * 2654435761u +
            static_cast<std::uint32_t>(rank) * 40503u;
        x[i] = static_cast<float>(mixed >> 8) * 0x1p-24f;
    }
    return x;
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank = 0, size = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const char* name = argc > 2 ? argv[2] : "";
    const bool naive = !std::strcmp(name, "naive");
    const bool ordered = !std::strcmp(name, "ordered");
    if (!naive && !ordered && std::strcmp(name, "sendrecv")) {
        if (rank == 0)
            std::fprintf(
                stderr,
                "usage: ring NUMBERS naive|ordered|sendrecv [OUT]\n");
        MPI_Finalize();
        return 2;
    }
    const Way way = naive     ? Way::naive
                    : ordered ? Way::ordered
                              : Way::sendrecv;
    std::vector<float> x =
        given(rank, std::strtoull(argv[1], nullptr, 10));
    const double begun = MPI_Wtime();
    all_reduce(x, way, rank, size);
    const double took = MPI_Wtime() - begun;
    int failed = 0;
    if (rank == 0) {
        if (argc > 3) {
            std::FILE* file = std::fopen(argv[3], "wb");
            failed = !file || std::fwrite(x.data(), sizeof(float),
                                          x.size(), file) != x.size();
            if (file && std::fclose(file)) failed = 1;
            if (failed) std::perror(argv[3]);
        }
        std::printf("C++: %d ranks, %zu numbers, %.3f ms\n", size,
                    x.size(), took * 1e3);
    }
    MPI_Finalize();
    return failed;
}
