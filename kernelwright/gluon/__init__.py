"""Run a Gluon kernel for Hopper on a CPU: its own source, a thread for every role.

Triton interprets no Gluon. Here the functions of a module run as the Python that they
are, on stand-ins for what they import:

>>> from kernelwright.gluon import Machine
>>> Machine(module).launch("kernel", 132, 2, x, y)

Shared memory is a tensor that begins as NaN, an mbarrier counts and flips its phase,
and where all roles wait there is a deadlock. A wgmma reads its operands as late as it
may, when it is waited for, or as early: what is overwritten or read too soon spoils
the numbers.

Layouts are not emulated: the compiler checks them. Copies by TMA are done as soon as
they are asked for, so that no fence and no ``store_wait`` is missed.
"""

from __future__ import annotations

from kernelwright.gluon.machine import Machine
from kernelwright.gluon.memory import Block, Descriptor, Pointer
from kernelwright.gluon.number import Number
from kernelwright.gluon.operations import OPERATIONS, Operation

__all__ = [
    "OPERATIONS",
    "Block",
    "Descriptor",
    "Machine",
    "Number",
    "Operation",
    "Pointer",
]
