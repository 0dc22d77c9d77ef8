"""Launch the kernels of the ladder: their sources, their constants, their limits."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Literal

import torch

import kernelwright as kw
from solutions.flash_attention_triton.options import UNBOUNDED, Options

RungName = Literal["forward", "causal", "wmma", "mma"]
RUNGS: tuple[RungName, ...] = ("forward", "causal", "wmma", "mma")

_FOLDER = Path(__file__).parent
_C_TYPES = {torch.float16: "__half", torch.bfloat16: "__nv_bfloat16"}
_QUERIES = 64  # a block, in the first three rungs
# Their 32-bit indices may wrap past this many elements of a tensor.
_MOST_ELEMENTS = 2**31 - 2**20
# As the exercise has it, heads of 64; for 128 fewer keys fit beside them.
_WMMA_CONSTANTS = "constexpr int D = 64, KEYS = 64,"
_WMMA_KEYS = {64: 64, 128: 32}

# Keys a step and warps, the best of an H200 (benchmarks/flash_attention.py, sweeps).
_MMA_TILES = {64: (128, 4), 128: (64, 4)}


class Strides(ctypes.Structure):
    """Elements from one batch, head and row to the next."""

    _fields_ = (
        ("batch", ctypes.c_longlong),
        ("head", ctypes.c_longlong),
        ("row", ctypes.c_int),
    )


class Shape(ctypes.Structure):
    """What ``flash_mma`` is told beside its tensors."""

    _fields_ = (
        *((name, ctypes.c_int) for name in ("heads", "group")),
        *((name, ctypes.c_int) for name in ("q_len", "kv_len", "last")),
        ("scale_log2", ctypes.c_float),
        *((name, Strides) for name in ("q", "k", "v", "out")),
    )


def launch(
    rung: RungName,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    options: Options,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Run one rung of the chapter.

    Returns:
        out, and each row's log-sum-exp where the rung writes it (``mma``).

    Raises:
        ValueError: what the rung cannot do, and which kernel can.
    """
    if reason := cannot(rung, q, k, options):
        raise ValueError(
            f"flash_attention: kernel={rung!r} {reason}. Leave kernel= away."
        )
    if rung == "mma":
        return launch_mma(q, k, v, options)
    return _launch_rung(rung, q, k, v, options), None


def cannot(
    rung: RungName, q: torch.Tensor, k: torch.Tensor, options: Options
) -> str | None:
    """Say why a rung does not fit; ``None`` where it does."""
    if not options.plain:
        return "takes no mask, no key padding, no window and no dropout"
    causal, given = options.bounded[1], f"{q.dtype} of {q.shape[3]}"
    if rung == "mma":
        if q.dtype not in _C_TYPES or q.shape[3] not in _MMA_TILES:
            return (
                f"takes fp16 or bf16 heads of 64 or 128; got {q.dtype} of {q.shape[3]}"
            )
        if not options.scale > 0.0:
            return f"takes a scale above 0; got {options.scale}"
        return None
    if k.shape[1] != q.shape[1]:
        return "takes as many heads of k as of q"
    if max(q.numel(), k.numel()) >= _MOST_ELEMENTS:
        return f"indexes with 32 bits: at most {_MOST_ELEMENTS:,} elements a tensor"
    if causal != (rung == "causal"):
        return "is causal" if rung == "causal" else "is not causal"
    if rung == "wmma":
        if q.dtype not in _C_TYPES or q.shape[3] not in _WMMA_KEYS:
            return (
                f"takes fp16 or bf16 heads of 64 or 128; got {q.dtype} of {q.shape[3]}"
            )
    elif q.dtype != torch.float32 or q.shape[3] != 64:
        return f"takes float32 heads of 64; got {given}"
    if k.shape[2] == 0 and rung != "causal":
        return "takes one key at least"
    return None


def _launch_rung(
    rung: RungName,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    options: Options,
) -> torch.Tensor:
    q, k, v = (t.contiguous() for t in (q, k, v))
    out = torch.empty_like(q)
    if not out.numel():
        return out
    head_dim, dtype = q.shape[3], q.dtype
    kernel = rung_kernel(rung, head_dim, dtype, q.device.type)
    grid = (kw.cdiv(q.shape[2], _QUERIES), q.shape[0] * q.shape[1])
    more = (options.last,) if rung == "causal" else ()
    block = 128 if rung == "wmma" else _QUERIES
    kernel[grid, block](q, k, v, out, q.shape[2], k.shape[2], *more, options.scale)
    return out


@cache
def rung_kernel(
    rung: RungName, head_dim: int, dtype: torch.dtype, device_type: str
) -> kw.cuda.Kernel:
    """Compile a rung; the WMMA rung's constants are set for the head and the dtype."""
    source = (_FOLDER / f"{rung}.cu").read_text()
    if rung == "wmma":
        keys = _WMMA_KEYS[head_dim]
        constants = f"constexpr int D = {head_dim}, KEYS = {keys},"
        source = source.replace(_WMMA_CONSTANTS, constants)
        source = source.replace("using T = half;", f"using T = {_C_TYPES[dtype]};")
        source = f"#include <cuda_bf16.h>\n{source}"
    return _compiled(source, f"{rung}.cu", device_type)[f"flash_{rung}"]


def launch_mma(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    options: Options,
    tiles: tuple[int, int] | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Launch ``flash_mma``; strides are its own business, if rows begin at 16 bytes."""
    q, k, v = (_in_groups(t) for t in (q, k, v))
    batch, heads, q_len, head_dim = q.shape
    out = torch.empty((batch, heads, q_len, head_dim), dtype=q.dtype, device=q.device)
    lse = torch.empty((batch, heads, q_len), dtype=torch.float32, device=q.device)
    if not out.numel():
        return out, lse
    keys, warps = tiles or _MMA_TILES[head_dim]
    shape = Shape(
        *(heads, heads // k.shape[1], q_len, k.shape[2]),
        options.last if options.bounded[1] else UNBOUNDED,
        options.scale * math.log2(math.e),
        *(Strides(*t.stride()[:3]) for t in (q, k, v, out)),
    )
    name = _mma_name(q.dtype, head_dim, (keys, warps))
    kernel = _mma_kernel(name, q.device.type)
    rows, shared = 32 * warps, _mma_shared(head_dim, (keys, warps))
    blocks = kw.cdiv(q_len, rows) * batch * heads
    reads = (_memory(t) for t in (q, k, v))
    kernel[blocks, rows, shared](*reads, out, lse, shape)
    return out, lse


@cache
def _mma_kernel(name: str, device_type: str) -> kw.cuda.Kernel:
    source = (_FOLDER / "mma.cu").read_text()
    return _compiled(source, "mma.cu", device_type)[name]


def _mma_name(dtype: torch.dtype, head_dim: int, tiles: tuple[int, int]) -> str:
    keys, warps = tiles
    return f"flash_mma<{_C_TYPES[dtype]}, {head_dim}, {keys}, {warps}>"


def _mma_shared(head_dim: int, tiles: tuple[int, int]) -> int:
    keys, warps = tiles
    return (32 * warps + 4 * keys) * head_dim * 2


def mma_instances() -> Iterator[tuple[str, int]]:
    """Name the instances of the last rung, with their dynamic shared memory."""
    for dtype in _C_TYPES:
        for head_dim, tiles in _MMA_TILES.items():
            yield _mma_name(dtype, head_dim, tiles), _mma_shared(head_dim, tiles)


def _in_groups(tensor: torch.Tensor) -> torch.Tensor:
    """Copy what cannot be read 16 bytes at a time."""
    fits = tensor.stride(3) == 1 and tensor.data_ptr() % 16 == 0
    fits = fits and all(step % 8 == 0 for step in tensor.stride()[:3])
    fits = fits and tensor.stride(2) < 2**24
    return tensor if fits else tensor.contiguous()


def _memory(tensor: torch.Tensor) -> torch.Tensor:
    """Return the stretch of memory under a strided tensor: what a launch takes."""
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    length = 1 + sum((n - 1) * step for n, step in steps)
    return tensor.as_strided((length if tensor.numel() else 0,), (1,))


@cache
def _compiled(source: str, name: str, device_type: str) -> kw.cuda.Module:
    backend: kw.cuda.Backend = "gpu" if device_type == "cuda" else "emulator"
    return kw.cuda.compile(source, name=name, backend=backend)
