"""All-reduce round a ring of MPI's ranks: ``mpiexec -n 4 python -m ….mpi.ring``.

    python -m solutions.ring_allreduce.mpi.ring NUMBERS WAY [OUT]

Rank 0 writes the sums, fp32, to the file OUT, and prints a line.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

WAYS = ("naive", "ordered", "sendrecv")


def exchange(comm: Any, outgoing: Any, incoming: Any, way: str) -> None:
    """Send to the right neighbour and receive from the left one.

    Args:
        comm: MPI's communicator.
        outgoing: fp32; changed by nobody meanwhile.
        incoming: fp32; where the left one's numbers go.
        way: ``naive``, ``ordered`` or ``sendrecv``.
    """
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    if way == "sendrecv":
        comm.Sendrecv(outgoing, right, recvbuf=incoming, source=left)
    elif way == "naive" or rank % 2 == 0:
        comm.Send(outgoing, right)
        comm.Recv(incoming, left)
    else:
        comm.Recv(incoming, left)
        comm.Send(outgoing, right)


def all_reduce(comm: Any, x: Any, way: str = "sendrecv") -> None:
    """Sum an array over all ranks, in place, by 2 (n - 1) steps of a ring.

    In step t rank r sends segment r - t - 1 and receives segment r - t - 2.

    Args:
        comm: MPI's communicator.
        x: (n), fp32.
        way: how neighbours exchange.

    Cost: 2 (n - 1) / n of the array's bytes sent a rank.
    """
    rank, size = comm.Get_rank(), comm.Get_size()
    bounds = [len(x) * r // size for r in range(size + 1)]
    room = np.empty(len(x) // size + 1, x.dtype)

    def segment(s: int) -> Any:
        return x[bounds[s % size] : bounds[s % size + 1]]

    for step in range(2 * (size - 1)):
        mine = segment(rank - step - 2)
        if step < size - 1:
            other = room[: len(mine)]
            exchange(comm, segment(rank - step - 1), other, way)
            mine += other
        else:
            exchange(comm, segment(rank - step - 1), mine, way)


def given(rank: int, count: int) -> Any:
    """Return a rank's numbers: multiples of 2^-24 that differ from place to place."""
    i = np.arange(count, dtype=np.uint32)
    mixed = i * np.uint32(2654435761) + np.uint32(rank * 40503)
    return (mixed >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)


def main(told: list[str]) -> int:
    """Run the program on this rank."""
    if len(told) < 2 or told[1] not in WAYS:
        print(f"usage: ring NUMBERS {'|'.join(WAYS)} [OUT]", file=sys.stderr)
        return 2
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    count, way = int(told[0]), told[1]
    x = given(comm.Get_rank(), count)
    begun = MPI.Wtime()
    all_reduce(comm, x, way)
    took = MPI.Wtime() - begun
    if comm.Get_rank() == 0:
        if len(told) > 2:
            Path(told[2]).write_bytes(x.tobytes())
        print(f"python: {comm.Get_size()} ranks, {count} numbers, {took * 1e3:.3f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
