"""The ring in MPI, in Python and in C++: the same program, and the same bits.

    mpiexec -n 4 python -m solutions.ring_allreduce.mpi.ring 1000003 sendrecv out.f32
    python -m solutions.ring_allreduce.mpi.programs 4 1000003 sendrecv    # both

    srun --mpi=pmi2 --ntasks 4 python -m solutions.ring_allreduce.mpi.ring …   # Slurm

A rank has two neighbours: it sends to the right and receives from the left, in one of
three ways.

    naive       all send, then receive: right while MPI keeps a message for later,
                and a deadlock once messages are larger than it keeps
    ordered     even ranks send first, odd ranks receive first
    sendrecv    MPI_Sendrecv: both at once, and nobody waits in a circle

Both programs come with wheels, ``pip install -e .[mpi]``, and need no system package.
"""
