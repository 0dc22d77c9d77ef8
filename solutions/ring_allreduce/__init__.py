"""All-reduce over ranks: sums that every processor gets, bit for bit the same.

    x[r] = x[0] + x[1] + … + x[n-1]      on every rank r

    import torch.distributed as dist
    from solutions.ring_allreduce import all_gather, all_reduce, reduce_scatter

    dist.init_process_group("gloo")             # or nccl, for tensors on GPUs
    all_reduce(x)                               # in place, any n, any size
    handle = all_reduce(x, op=dist.ReduceOp.AVG, async_op=True)
    ...                                         # work that needs no x
    handle.wait()

The same program runs on one machine and on a cluster:

    torchrun --nproc-per-node 4 program.py
    sbatch --nodes 2 --ntasks-per-node 1 --wrap \\
        'srun torchrun --nnodes $SLURM_NNODES --nproc-per-node 4 \\
         --rdzv-backend c10d --rdzv-id $SLURM_JOB_ID \\
         --rdzv-endpoint $(scontrol show hostnames | head -1):29500 program.py'

    collectives.py    the functions, their arguments and handles
    headers.py        what ranks tell each other first, and how they differ
    schedules.py      one message to all, a ring of chunks, a chain
    mesh.py           connections, who is late and who is lost
    peers.cu          the same on GPUs that reach each other's memory
    gpu_transport.py  how one process maps another's GPU memory
    on_gpus.py        which kernel, with which signs
    mpi/              the ring with blocking messages, in Python and in C++

Bytes sent a rank: 2 (n - 1) / n of the tensor's, the least that there is. Ranks that
give what does not fit together all raise ``RanksDiffer``; a process that ends is named
by all others in ``RankLost``.

When not to use it: on several machines of GPUs, where NCCL also knows the network
between them; on GPUs whose switch adds by itself (NVLS).
"""

from solutions.ring_allreduce.collectives import (
    Handle,
    ReduceOp,
    all_gather,
    all_reduce,
    broadcast,
    reduce_scatter,
)
from solutions.ring_allreduce.headers import RanksDiffer
from solutions.ring_allreduce.mesh import RankLost

__all__ = [
    "Handle",
    "RankLost",
    "RanksDiffer",
    "ReduceOp",
    "all_gather",
    "all_reduce",
    "broadcast",
    "reduce_scatter",
]
