"""Outputs sealed while the clock still runs, and checked when there is time.

When a turn is over the supervisor draws a key, and only then is it known which
elements of every call's outputs are looked at. They are copied, all calls' at once,
before the clock stops: what was not yet computed by then is found missing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from autograder.exercise import Case, Tolerance
from autograder.worker import device_memory
from autograder.worker.places import contiguous_strides

WINDOWS, WIDTH = 16, 256
"""Stretches of neighbours looked at in each output: few, because each lies in a page
that the GPU must look up, while the clock runs."""

PROBES = WINDOWS * WIDTH
_EDGE = 64
"""At both ends every element is looked at: that is where guards fail."""

_GATHER = """
__global__ void kw_gather(const long long* base, const long long* offset,
                          unsigned char* out, long long count, long long each,
                          int size) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= count) return;
    const unsigned char* from =
        reinterpret_cast<const unsigned char*>(base[i / each]) + offset[i];
    for (int b = 0; b < size; b++) out[i * size + b] = from[b];
}
"""


@dataclass(frozen=True)
class Made:
    """Where one output of every call lies.

    Args:
        name: the output's name.
        dtype, shape, strides: the same for every call.
        addresses: device address of each call's first element.
    """

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    addresses: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Elements of one call's output."""
        return math.prod(self.shape)

    def whole(self, call: int) -> torch.Tensor:
        """View one call's output where it lies."""
        steps = zip(self.shape, self.strides, strict=True)
        span = 1 + sum((length - 1) * stride for length, stride in steps)
        size = span * self.dtype.itemsize
        flat = device_memory.as_bytes(self.addresses[call], size).view(self.dtype)
        return flat.as_strided(self.shape, self.strides)


@dataclass(frozen=True)
class Sealed:
    """One output's probes: which elements, and what stood there."""

    made: Made
    index: torch.Tensor
    got: torch.Tensor


def probes(elements: int, calls: int, key: int, device: str = "cuda") -> torch.Tensor:
    """Draw which elements are looked at: a row a call, both ends in every row."""
    if elements <= PROBES:
        row = torch.arange(elements, device=device)
        return row.expand(calls, elements)
    generator = torch.Generator(device).manual_seed(key)
    begin = torch.randint(
        elements - WIDTH + 1, (calls, WINDOWS, 1), generator=generator, device=device
    )
    drawn = (begin + torch.arange(WIDTH, device=device)).reshape(calls, PROBES)
    edge = torch.arange(-_EDGE, _EDGE, device=device) % elements
    return torch.cat([drawn, edge.expand(calls, 2 * _EDGE)], dim=1)


def seal(made: Sequence[Made], key: int) -> list[Sealed]:
    """Copy the probes of every call, and wait until they are copied."""
    sealed = []
    for number, one in enumerate(made):
        calls = len(one.addresses)
        if one.elements == 0:
            continue
        index = probes(one.elements, calls, key + number)
        offsets = _offsets(index, one) * one.dtype.itemsize
        base = torch.tensor(one.addresses, dtype=torch.int64).cuda()
        size, count = one.dtype.itemsize, index.numel()
        raw = torch.empty(count * size, dtype=torch.uint8, device="cuda")
        kernel = gather_kernel()[-(-count // 256), 256]
        kernel(base, offsets.contiguous(), raw, count, index.shape[1], size)
        sealed.append(Sealed(one, index, raw.view(one.dtype).view(index.shape)))
    torch.cuda.synchronize()
    return sealed


def wrong_places(
    got: torch.Tensor,
    want: torch.Tensor,
    scale: torch.Tensor,
    tolerance: Tolerance,
    case: Case,
) -> torch.Tensor:
    """Mark the elements that differ by more than the tolerance.

    ``|got - want| <= factor * eps * sqrt(length) * |scale| + subnormal``; NaN must
    meet NaN, an infinity the same infinity, and integers must be equal.
    """
    if not got.dtype.is_floating_point:
        return got != want.to(got.dtype)
    kind = torch.finfo(got.dtype)
    exact = want.double()
    width = tolerance.factor * kind.eps * math.sqrt(max(1, tolerance.length(case)))
    bound = width * scale.double().abs() + kind.smallest_normal * kind.eps
    close = ((got.double() - exact).abs() <= bound) & exact.isfinite()
    same = got == exact.to(got.dtype)
    return ~(close | same | (got.isnan() & exact.isnan()))


def _offsets(index: torch.Tensor, made: Made) -> torch.Tensor:
    """Turn elements' numbers into places in memory, in elements."""
    if made.strides == contiguous_strides(made.shape):
        return index
    offset, below = torch.zeros_like(index), made.elements
    for length, stride in zip(made.shape, made.strides, strict=True):
        below //= length
        offset += index // below % length * stride
    return offset


@cache
def gather_kernel() -> Any:
    """Compile the kernel that copies the probes."""
    from kernelwright.cuda import compile

    return compile(_GATHER, name="kw_gather.cu")["kw_gather"]
