"""A GPU on paper: what a benchmark asks of one, answered without any.

Tensors that belong on the GPU have a shape, a dtype and no memory (torch's device
``meta``), kernels are known by name and launch nothing, and a clock gives times that
are known beforehand. What is left is the benchmark's own: which candidates, in which
turn, with which names, labels, bytes and ratios.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from torch.overrides import TorchFunctionMode

import kernelwright as kw
from benchmarks import _peers, reduction

NAME = "NVIDIA H200"
MEMORY = 139 * 2**30


class Placed(TorchFunctionMode):
    """Put what asks for a GPU elsewhere: on paper (``meta``), or on the CPU."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self.place = place

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: Any = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        if "cuda" in str(kwargs.get("device", "")):
            kwargs["device"] = self.place
        if func is torch.Tensor.cuda:
            return args[0]  # it has numbers, so it stays where they are
        if func is torch.Tensor.__bool__ and args[0].is_meta:
            return True  # what values are asked for, as whether all are finite
        return func(*args, **kwargs)


class Module:
    """A compiled text: knows which kernels stand in it."""

    def __init__(self, text: str) -> None:
        self.kernels = re.findall(
            r"__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)", text
        )

    def __getitem__(self, expression: str) -> Kernel:
        name = expression.split("<")[0]
        assert name in self.kernels, f"{name} is not among {self.kernels}"
        return Kernel()


class Kernel:
    """A kernel that launches nothing, however it is asked to."""

    def __getitem__(self, launch: object) -> Kernel:
        return self

    def __call__(self, *arguments: object) -> None:
        return None


class Clock:
    """Stands for ``kw.bench``: the n-th call takes a time that n alone decides."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, run: Callable[..., object], *given: Any, **how: Any) -> Any:
        self.calls += 1
        ms = time_of(self.calls)
        moved, flops = how.get("bytes_moved"), how.get("flops")
        return SimpleNamespace(
            median_ms=ms,
            low_ms=0.9 * ms,
            high_ms=1.1 * ms,
            gbps=moved / ms / 1e6 if moved else None,
            tflops=flops / ms / 1e9 if flops else None,
        )


def time_of(call: int) -> float:
    """Return the milliseconds of the n-th call that is timed, between 0.5 and 1.5."""
    return 0.5 + call * 0.6180339887 % 1


@contextlib.contextmanager
def gpu_on_paper(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Answer for a GPU: torch's questions, compiling, timing."""
    _forget()
    for name, answer in {
        "is_available": True,
        "get_device_name": NAME,
        "get_device_properties": SimpleNamespace(multi_processor_count=132),
        "get_device_capability": (9, 0),
        "current_stream": SimpleNamespace(cuda_stream=0),
        "memory_allocated": 0,
        "max_memory_allocated": 0,
        **dict.fromkeys(("synchronize", "empty_cache", "_sleep")),
        "reset_peak_memory_stats": None,
    }.items():
        patch.setattr(torch.cuda, name, lambda *_, _answer=answer, **__: _answer)
    patch.setattr(torch, "compile", lambda function, **_: function)
    patch.setattr(torch.nn.functional, "scaled_dot_product_attention", _attend)
    for room in ("kernelwright.cuda.compile", "kernelwright.cuda.module.compile"):
        patch.setattr(room, lambda text, **_: Module(text))
    device = SimpleNamespace(is_gpu=True, driver="0", copy_gbps=1.0)
    patch.setattr(kw, "device", lambda: device)
    patch.setattr(kw, "bench", Clock())
    patch.setattr(kw, "peak_memory", _peak_memory)
    for name in ("cupy", "cupy._core"):
        patch.setitem(sys.modules, name, MagicMock())
    try:
        with Placed("meta"):
            yield
    finally:
        _forget()


def _forget() -> None:
    """Let no kernel of paper outlive it, nor a real one be met on it."""
    _peers.compiled.cache_clear()
    reduction.compiled.cache_clear()


def _attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **_: object
) -> torch.Tensor:
    return q + 0 * (k.sum() + v.sum())


def _peak_memory(run: Callable[..., object], *given: Any, **_: object) -> Any:
    """Hold the scores of standard attention against the memory of a GPU."""
    if getattr(run, "__name__", "") == "standard":
        q, k, _v = given
        scores = q[..., 0].numel() * k.shape[2] * q.itemsize
        if 2 * scores > MEMORY:
            raise torch.OutOfMemoryError(f"CUDA out of memory: {scores}. GPU 0 is full")
    return SimpleNamespace(peak_bytes=2**20)


def record_of(
    stem: str, folder: Path, patch: pytest.MonkeyPatch, *told: str
) -> dict[str, Any]:
    """Run a benchmark's command on paper; return what it stored."""
    bench = import_module(f"benchmarks.{stem}")
    patch.setattr(sys, "argv", [stem, *told, "--out", str(folder)])
    for name in vars(bench):
        if name.startswith("check_"):
            patch.setattr(bench, name, lambda *_: None)
    PREPARED.get(stem, lambda *_: None)(bench, patch)
    with gpu_on_paper(patch):
        assert bench.main() == 0
    (path,) = folder.glob("*.json")
    record: dict[str, Any] = json.loads(path.read_text())
    return record


def _on_cpu(
    bench: ModuleType, name: str, patch: pytest.MonkeyPatch, **smaller: int
) -> None:
    """Let a function of the benchmark's work with numbers, and with less of them."""
    function = getattr(bench, name)

    def run() -> Any:
        with patch.context() as inner, Placed("cpu"):
            for constant, value in smaller.items():
                inner.setattr(bench, constant, value)
            return function()

    patch.setattr(bench, name, run)


def _layernorm(bench: ModuleType, patch: pytest.MonkeyPatch) -> None:
    for kind, (_, theirs, has_bias) in list(bench.KINDS.items()):
        patch.setitem(bench.KINDS, kind, (theirs, theirs, has_bias))
    theirs = torch.nn.functional.layer_norm
    patch.setattr(bench.family, "layer_norm", lambda x, n: theirs(x, (n,)))
    _on_cpu(bench, "far_from_zero", patch)


def _matmul(bench: ModuleType, patch: pytest.MonkeyPatch) -> None:
    _on_cpu(bench, "race", patch, SIZE=64)


def _reduction(bench: ModuleType, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(bench.family, "sum_all", torch.sum)
    _on_cpu(bench, "accuracy", patch)


def _softmax(bench: ModuleType, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(bench, "softmax", lambda x: torch.softmax(x, -1))


def _fusion(bench: ModuleType, patch: pytest.MonkeyPatch) -> None:
    chains = (chain._replace(ours=chain.theirs) for chain in bench.CHAINS)
    patch.setattr(bench, "CHAINS", tuple(chains))


def _epilogue(bench: ModuleType, patch: pytest.MonkeyPatch) -> None:
    def linear_gelu(x: Any, w: Any, b: Any, approximate: str = "none") -> Any:
        return bench.linear_gelu(x, w, b)

    def conv(x: Any, w: Any, b: Any, stride: int, padding: int, act: str) -> Any:
        return torch.nn.functional.conv2d(x, w, b, stride, padding)

    patch.setattr(bench.epilogue, "linear_gelu", linear_gelu)
    patch.setattr(bench.epilogue, "mlp", lambda *g, **_: bench.mlp(*g))
    patch.setattr(bench.epilogue, "gated_mlp", lambda *g, **_: bench.gated_mlp(*g))
    patch.setattr(bench.epilogue, "conv2d_bias_act", conv)
    for name in ("linear_gelu_fast", "mlp_fused"):
        patch.setattr(bench, name, lambda *_: None)


def _moe(bench: ModuleType, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(bench.ladder, "grouped_gemm", lambda *_: None)


def _ring_allreduce(bench: ModuleType, patch: pytest.MonkeyPatch) -> None:
    """Give times as ranks would, which are processes of their own."""

    def times_on_ranks(ranks: int) -> dict[int, Any]:
        found: dict[int, Any] = {}
        for nbytes in bench.SIZES:
            names = [f"all_reduce_{nbytes}{end}" for end in (bench.NCCL, bench.OURS)]
            times = [
                [kw.bench(bench._nothing).median_ms for _ in names]
                for _ in range(bench.ROUNDS)
            ]
            turned = map(list, zip(*times, strict=True))
            found[nbytes] = dict(zip(names, turned, strict=True))
        return found

    patch.setattr(bench, "times_on_ranks", times_on_ranks)
    patch.setattr(torch.cuda, "device_count", lambda: 2)


def _parallel(bench: ModuleType, patch: pytest.MonkeyPatch) -> None:
    def timed(group: str, names: list[str]) -> dict[str, list[float]]:
        times: dict[str, list[float]] = {name: [] for name in names}
        for _ in range(bench.ROUNDS):
            for name in names:
                times[name].append(kw.bench(print).median_ms)
        return times

    patch.setattr(torch.cuda, "device_count", lambda: 2)
    patch.setattr(bench, "on_two_gpus", timed)


def _profiling(bench: ModuleType, patch: pytest.MonkeyPatch) -> None:
    for name in ("_clock", "_event_ms", "_queued_ms"):
        patch.setattr(bench, name, lambda *_, **__: 1.0)
    patch.setattr(bench.family, "time_kernel", lambda *_: 1.0)
    patch.setattr(bench.family, "peak_memory", lambda *_: (2**20, 0))
    rate = SimpleNamespace(gbps=1.0, tflops=1.0)
    for name in ("copy_bandwidth", "matmul_rate"):
        patch.setattr(bench, name, lambda *_, **__: rate)
    profiler = kw.Profiler
    patch.setattr(kw, "Profiler", lambda device, **how: profiler("cpu", **how))
    _on_cpu(bench, "profiler_cost", patch, SIDE=64)


def _flash_attention_triton(bench: ModuleType, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(bench, "compile_all", lambda: None)
    patch.setattr(bench, "forward", lambda q, *_, **__: (q, q[..., 0]))
    for name in ("backward", "decode_attention", "flash_triton_causal", "flash_fast"):
        patch.setattr(bench, name, lambda *_, **__: None)
    for name in ("forward_triton", "decode_split_kv", "flash_triton", "flash_backward"):
        patch.setattr(bench, name, lambda *_, **__: None)
    errors = import_module("benchmarks._flash_attention_triton_errors")
    patch.setattr(errors, "LENGTH", 32)
    patch.setattr(errors, "forward", lambda *a, kernel, **k: errors.standard(*a, **k))

    def backward(grad: torch.Tensor, q: torch.Tensor, *more: Any, **how: Any) -> Any:
        k, v = more[:2]
        how.pop("kernel", None)
        return errors._with_gradients(q, k, v, grad, torch.float32, how)[0][1:]

    patch.setattr(errors, "backward", backward)
    _on_cpu(bench, "measured_errors", patch)


def _transformer(bench: ModuleType, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(bench, "make_optimizer", lambda *_, **__: SimpleNamespace(state={}))
    patch.setattr(bench, "Step", lambda *_: lambda pieces: pieces)
    patch.setattr(bench.Step, "WARM_UPS", 0, raising=False)
    patch.setattr(bench, "captured", lambda run: run)


PREPARED: dict[str, Callable[[ModuleType, pytest.MonkeyPatch], None]] = {
    "epilogue": _epilogue,
    "layernorm": _layernorm,
    "matmul": _matmul,
    "moe": _moe,
    "parallel": _parallel,
    "reduction": _reduction,
    "ring_allreduce": _ring_allreduce,
    "softmax": _softmax,
    "fusion": _fusion,
    "profiling": _profiling,
    "flash_attention_triton": _flash_attention_triton,
    "transformer": _transformer,
}
