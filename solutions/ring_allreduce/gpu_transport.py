"""GPU memory that ranks write into, mapped by every process from every other.

Each rank allocates one piece and gives its CUDA IPC handle away over the connections
that ``mesh.py`` made; to map it needs no fabric, and works between GPUs that reach each
other and between processes on one GPU. A thread watches the connections meanwhile: a
kernel that waits for a process which has ended is told so in pinned host memory.
"""

from __future__ import annotations

import os
import select
import threading
from typing import Any

import numpy as np
import torch

from solutions.ring_allreduce.headers import Header, agree
from solutions.ring_allreduce.mesh import Mesh, RankLost

# As in peers.cu.
THREADS, SLOTS, PART = 512, 4, 2048
PACK = 16
LOST = 1

BLOCKS = 64
"""Of a launch: half of an H200's processors are left to others, where two share one."""
PARTS = 8
"""Of a chunk between two ranks: what a rank sends at a time keeps all links busy."""
LIMIT_S = float(os.environ.get("KERNELWRIGHT_RANK_LIMIT_S", "300"))
"""How long a kernel waits for a rank that is late, but has not ended."""

_IPC_LAZY_ENABLE_PEER_ACCESS = 1
_CLOCK_RATE = 13


def most_at_once(ranks: int) -> int:
    """Return the bytes of the largest message that goes whole to all.

    One wait in place of two, for n - 1 times its bytes in place of 2 (n - 1) / n: a
    megabyte is sent before the second wait would be over. Between two ranks both send
    as much, and only that sums come while chunks go speaks for two waits.
    """
    return 2**24 if ranks == 2 else 2**20 // (ranks - 1) // PACK * PACK


class Peers:
    """The memory of all ranks of a group, as this rank's GPU sees it.

    Args:
        mesh: the group's connections.
        device: this rank's GPU.

    Attributes:
        once: by turn, addresses of the boxes and of the signs for small messages.
        chunks: addresses of the boxes and of the signs for large ones.
        room: bytes of a rank's message in a box for small ones.
        half: packs of a box for chunks, and as many for sums.
        parts: of the largest chunk.
        trouble: two words of pinned memory: what a kernel says, and what it is told.
        limit: how long kernels wait, in clocks.

    Raises:
        RuntimeError: a GPU cannot reach another's memory.
    """

    def __init__(self, mesh: Mesh, device: torch.device) -> None:
        import cupy

        self.mesh, self.device = mesh, device
        self._runtime = cupy.cuda.runtime
        ranks = mesh.size
        self.room = most_at_once(ranks)
        self.parts = max(1, PARTS // (ranks - 1))
        a_box = ranks * self.room
        self.half = BLOCKS * SLOTS * ranks * self.parts * PART  # packs
        slots = 2 * self.half * PACK
        a_page = 2 * ranks * BLOCKS * 8
        sizes = (a_box, a_box, slots, a_page, a_page, a_page)
        places = [0, *np.cumsum(sizes).tolist()]
        with torch.cuda.device(device), cupy.cuda.Device(device.index):
            torch.cuda.current_stream().synchronize()
            self._own = self._runtime.malloc(places[-1])
            self._runtime.memset(self._own, 0, places[-1])
            self._runtime.deviceSynchronize()
            bases = self._mapped()
            rate = self._runtime.deviceGetAttribute(_CLOCK_RATE, device.index)
        table = torch.tensor(
            [[base + place for base in bases] for place in places[:-1]],
            dtype=torch.int64,
        ).to(device)
        self._table = table  # lives as long as its addresses are used
        row = [table.data_ptr() + table.stride(0) * 8 * i for i in range(len(sizes))]
        self.once = ((row[0], row[3]), (row[1], row[4]))
        self.chunks = (row[2], row[5])
        self._words = torch.zeros(2, dtype=torch.int64, pin_memory=True)
        self.trouble = self._words.numpy()
        self.trouble_at = self._words.data_ptr()
        self.limit = int(LIMIT_S * 1000 * rate)
        self.ended: list[int] = []
        threading.Thread(
            target=_watch, args=(mesh, self.trouble, self.ended), daemon=True
        ).start()

    def _mapped(self) -> list[int]:
        """Give the handle away, and map the others' memory."""
        handle = memoryview(self._runtime.ipcGetMemHandle(self._own))
        said = Header("exchange", device="cuda", dtype=torch.uint8)
        got = agree(self.mesh, said, dict.fromkeys(self.mesh.sockets, handle))
        bases = []
        for peer in range(self.mesh.size):
            if peer == self.mesh.rank:
                bases.append(int(self._own))
                continue
            try:
                base = self._runtime.ipcOpenMemHandle(
                    bytes(got[peer]), _IPC_LAZY_ENABLE_PEER_ACCESS
                )
            except self._runtime.CUDARuntimeError as error:
                name = self.mesh.names[peer]
                raise RuntimeError(
                    f"rank {self.mesh.names[self.mesh.rank]} cannot map the GPU memory "
                    f"of rank {name}: {error}. Both have to be processes of one "
                    "machine, on GPUs that reach each other."
                ) from error
            bases.append(int(base))
        agree(self.mesh, said)  # all have mapped all
        return bases

    def check(self, calls: dict[int, Header]) -> None:
        """Raise what a kernel has said, if any has.

        Args:
            calls: what was called, by the kind that signs carry.

        Raises:
            RankLost: a rank has ended, or did not come in time.
            RanksDiffer: ranks called what does not fit together.
        """
        word = int(self.trouble[0])
        if not word:
            return
        what, peer, kind = word >> 56, word >> 32 & 0xFFFFFF, word & 0xFFFFFFFF
        own, mesh = calls[kind], self.mesh
        if self.ended:
            mesh.ended[:] = self.ended
            raise mesh.lose(own.kind)
        if what != LOST:
            # All hear what all called, and all raise the same.
            agree(mesh, own, limit_s=8.0)
        name = mesh.names[peer]
        raise RankLost(
            f"{own}: rank {name} did not come to this call within {LIMIT_S:.0f} s; its "
            "process runs still. Look at where it is; KERNELWRIGHT_RANK_LIMIT_S "
            "sets how long is waited.",
            (name,),
        )


def _watch(mesh: Mesh, trouble: Any, ended: list[int]) -> None:
    """Tell kernels that wait when a process has ended."""
    poll = select.poll()
    by_number = {made.fileno(): peer for peer, made in mesh.sockets.items()}
    for number in by_number:
        poll.register(number, select.POLLRDHUP)
    while by_number:
        for number, _ in poll.poll():
            poll.unregister(number)
            ended.append(by_number.pop(number))
            trouble[1] = 1
