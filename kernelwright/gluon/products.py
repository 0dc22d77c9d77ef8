"""A wgmma, which is asked for first and done later."""

from __future__ import annotations

from typing import Any

import torch

from kernelwright.gluon.memory import Block
from kernelwright.gluon.number import number


class Product:
    """A wgmma that was asked for: a b, and acc + a b where ``use_acc``.

    Args:
        a: in shared memory or registers, (m, k).
        b: in shared memory, (k, n).
        acc: in registers or itself asked for, fp32 (m, n).
        use_acc: add to acc.
    """

    def __init__(self, a: Any, b: Block, acc: Any, use_acc: bool) -> None:
        self.a, self.b, self.acc, self.use_acc = a, b, acc, use_acc
        self.value: Any = None

    def finish(self) -> None:
        """Read the operands and multiply."""
        if self.value is None:
            a = self.a.data if isinstance(self.a, Block) else torch.as_tensor(self.a)
            acc = self.acc.value if isinstance(self.acc, Product) else self.acc
            product = a.float() @ self.b.data.float()
            self.value = number(acc + product if self.use_acc else product)
