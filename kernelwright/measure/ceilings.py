"""What this machine can do at best: bytes copied and products summed a second."""

from __future__ import annotations

import torch

from kernelwright.measure.bench import bench
from kernelwright.measure.cores import cache_bytes, memory_available
from kernelwright.measure.timing import Timing

_GPU_COPY_BYTES = 1024**3
_CPU_COPY_BYTES = 256 * 1024**2


def copy_bandwidth(
    device: torch.device | str = "cuda", *, seconds: float = 0.2
) -> Timing:
    """Measure how fast memory is copied: the practical ceiling of moving bytes.

    Args:
        device: ``cuda``, ``cuda:1`` or ``cpu``.
        seconds: about how long to measure.

    Returns:
        The timing of one copy; ``gbps`` counts bytes read plus bytes written.

    Cost: 2 x 1 GiB a copy on a GPU, at most 2 x 256 MiB on a CPU.
    """
    place = torch.device(device)
    size = _copy_bytes(place)
    source = _varied_bytes(size, place)
    target = torch.empty_like(source)
    return bench(
        _copy,
        target,
        source,
        bytes_moved=2 * size,
        seconds=seconds,
        device=place,
        label="copy",
    )


def matmul_rate(
    device: torch.device | str = "cuda",
    dtype: torch.dtype | None = None,
    *,
    size: int | None = None,
    seconds: float = 0.2,
) -> Timing:
    """Measure how fast the library multiplies square matrices.

    Args:
        device: ``cuda``, ``cuda:1`` or ``cpu``.
        dtype: bfloat16 on a GPU that has it (capability 8.0), float16 on an older
            one, float32 on a CPU, unless given.
        size: rows and columns; 8,192 on a GPU and 1,024 on a CPU unless given.
        seconds: about how long to measure.

    Returns:
        The timing of one product; ``tflops`` counts ``2 * size^3``.
    """
    place = torch.device(device)
    on_gpu = place.type == "cuda"
    if dtype is None:
        dtype = _matrix_dtype(place) if on_gpu else torch.float32
    n = size or (8192 if on_gpu else 1024)
    left = torch.randn(n, n, device=place).to(dtype)
    right = torch.randn(n, n, device=place).to(dtype)
    return bench(
        torch.matmul,
        left,
        right,
        flops=2 * n**3,
        seconds=seconds,
        device=place,
        label=f"matmul {str(dtype).removeprefix('torch.')} {n}",
    )


def _copy(target: torch.Tensor, source: torch.Tensor) -> None:
    """Copy one tensor into another."""
    target.copy_(source)


def _varied_bytes(size: int, place: torch.device) -> torch.Tensor:
    """Fill memory with what is not zeros: those draw less power and run faster."""
    if place.type == "cuda":
        return torch.randint(0, 256, (size,), dtype=torch.uint8, device=place)
    # Drawing random bytes on a CPU takes longer than the whole measurement.
    return torch.arange(size // 8, device=place).view(torch.uint8)


def _copy_bytes(place: torch.device) -> int:
    """Choose a size well past the caches that the memory has room for."""
    if place.type == "cuda":
        free, _ = torch.cuda.mem_get_info(place)
        # Two sets of source and target, and as much again left to others.
        return min(_GPU_COPY_BYTES, free // 8) // 8 * 8
    wanted = max(64 * 1024**2, min(2 * cache_bytes(), _CPU_COPY_BYTES))
    return min(wanted, memory_available() // 8) // 8 * 8


def _matrix_dtype(place: torch.device) -> torch.dtype:
    """Choose the 16-bit type that the GPU's matrix units take."""
    major, _ = torch.cuda.get_device_capability(place)
    return torch.bfloat16 if major >= 8 else torch.float16
