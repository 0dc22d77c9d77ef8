"""What a call costs the CPU: a launch, and each family's function beside torch's own.

    python -m benchmarks.launch                 measure and store
    python -m benchmarks.launch --check         and hold against the floors
    python -m benchmarks.launch --only-correct  no timing; also without a GPU

A kernel of one block takes seven arguments; the functions' operands are small. Few
calls are made before the device is waited for, so that the CPU never waits for room in
the queue: what is timed is the CPU's part. Without a GPU the packing alone is timed, on
tensors of the CPU, and nothing is stored.
"""

from __future__ import annotations

import statistics
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from typing import Any

import torch

import kernelwright as kw
from benchmarks import _command
from benchmarks._candidates import Row
from benchmarks._host_calls import Call, calls
from kernelwright.cuda.arguments import pack_arguments
from kernelwright.cuda.plan import Plan
from kernelwright.cuda.signature import Signature, parse_signature
from solutions.layernorm import layer_norm

SOURCE = """
__global__ void affine(const float* x, const float* weight, const float* bias,
                       float* out, int rows, int columns, float scale) {
    int i = threadIdx.x;
    if (i < rows * columns) out[i] = x[i] * weight[i] * scale + bias[i];
}
"""
TYPES = "void (float const*, float const*, float const*, float*, int, int, float)"
N = 256
IN_A_ROW, ROUNDS = 50, 400

# 0.5: twice what torch's own function takes.
FLOORS: dict[str, dict[str, float]] = {
    "nvidia-h200": {
        "kernel": 0.6,
        "launcher": 0.65,
        **dict.fromkeys(
            ("add_one", "transpose", "mean_abs", "sum_squared", "matmul", "gemm"), 0.8
        ),
        **dict.fromkeys(("layer_norm", "rms_norm", "flash_attention"), 0.8),
        **dict.fromkeys(("vector_add", "saxpy", "softmax", "sum_all"), 0.6),
        "decode_attention": 0.7,
        **dict.fromkeys(
            ("softmax_training", "layer_norm_training", "flash_attention_training"), 0.5
        ),
    }
}


def main() -> int:
    """Check, measure, store; return 0 if all is right and above its floor."""
    options = _command.command_line(__doc__).parse_args()
    if not torch.cuda.is_available() and not options.only_correct:
        for row in packing("cpu"):
            show(row)
    return _command.run("launch", options, check_values, measured, FLOORS)


def check_values(device: str) -> None:
    """Hold the kernel against the formula, and the short way against the long one."""
    given = arguments(device)
    x, weight, bias, out = given[:4]
    kw.cuda.compile(SOURCE)["affine"][1, N](*given)
    torch.testing.assert_close(out, x * weight * 0.5 + bias)
    plan, signature = planned(device)
    ready = plan.pack(given)
    assert ready is not None
    words = [data.ljust(8, b"\0") for data in long_way(signature, given, device)]
    assert ready[0].data.raw == b"".join(words)
    print(f"right on {device}: affine, and its arguments by both ways")


def arguments(device: str) -> tuple[Any, ...]:
    """Return what the kernel takes: four tensors and three numbers."""
    tensors = torch.randn(4, N, device=device)
    return (*tensors.unbind(), 1, N, 0.5)


def planned(device: str) -> tuple[Plan, Signature]:
    """Return the kernel's plan and its signature."""
    signature = parse_signature("affine", TYPES)
    plan = Plan.of(signature, device)
    assert plan is not None
    return plan, signature


def long_way(signature: Signature, given: tuple[Any, ...], device: str) -> list[bytes]:
    """Pack as unusual arguments are packed."""
    return pack_arguments(signature, given, device)[0]


def measured(options: Namespace) -> _command.Measured:
    """Time our launch, torch's and Triton's, and the packing."""
    given = arguments("cuda")
    kernel = kw.cuda.compile(SOURCE)["affine"]
    ready = kernel[1, N]
    x, out = given[0], given[3]
    ways: dict[str, tuple[str, Callable[[], object]]] = {
        "kernel": ("kernel[grid, block](7 arguments)", lambda: kernel[1, N](*given)),
        "launcher": ("the same, grid and block chosen", lambda: ready(*given)),
        "torch": ("torch.add, out=", lambda: torch.add(x, x, out=out)),
    }
    triton = triton_launch(given)
    if triton is not None:
        ways["triton"] = ("Triton, 7 arguments", triton)
    # In turn, so that a clock that drifts meets all of them alike.
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, (_, call) in ways.items():
            torch.cuda.synchronize()
            times[name].append(microseconds(call))
    torch.cuda.synchronize()
    rows = [row_of(name, ways[name][0], times[name]) for name in ways]
    of = {row["name"]: row["median_us"] for row in rows}
    for row in rows:
        # As for a kernel: over 1 is cheaper than the peer, torch's launch.
        row["ratio"] = of["torch"] / row["median_us"]
        if "triton" in of:
            row["ratio_triton"] = of["triton"] / row["median_us"]
    rows += packing("cuda") + list(families())
    for row in rows:
        show(row)
    yield rows, {"arguments": len(given), "in_a_row": IN_A_ROW}


def families() -> Iterator[Row]:
    """Time each function beside torch's own, in turn: without and with a gradient."""
    for call in calls("cuda"):
        yield from beside_torch(call, call.name, call.operands)
        if call.name == "decode_attention":
            continue
        leaves = tuple(t.detach().requires_grad_() for t in call.operands)
        yield from beside_torch(call, f"{call.name}_training", leaves)
    yield new_shape()


def beside_torch(
    call: Call, name: str, operands: tuple[torch.Tensor, ...]
) -> Iterator[Row]:
    """Time a call and its peer; with a gradient, the way back too."""

    def once(function: Callable[..., torch.Tensor]) -> Callable[[], object]:
        out = function(*operands)
        if not out.requires_grad:
            return lambda: function(*operands)
        ones = torch.ones_like(out)

        def both() -> None:
            torch.autograd.grad(function(*operands), operands, ones)

        return both

    ways = [once(call.ours), once(call.peer)]
    times: list[list[float]] = [[], []]
    for _ in range(ROUNDS // 10):
        for samples, way in zip(times, ways, strict=True):
            torch.cuda.synchronize()
            samples.append(microseconds(way))
    row = row_of(name, name, times[0])
    row["torch_us"] = statistics.median(times[1])
    row["ratio"] = row["torch_us"] / row["median_us"]
    yield row


def new_shape() -> Row:
    """Time the first call of a shape whose kernel is compiled already."""
    weight = torch.ones(128, device="cuda")
    samples = []
    for rows in range(1, 200):
        x = torch.zeros(rows, 128, device="cuda")
        torch.cuda.synchronize()
        begin = time.perf_counter()
        layer_norm(x, (128,), weight, weight)
        samples.append((time.perf_counter() - begin) * 1e6)
    return row_of("new_shape", "layer_norm, a shape not seen before", samples[50:])


def packing(device: str) -> list[Row]:
    """Time the packing alone: by the plan, and the long way."""
    given = arguments(device)
    plan, signature = planned(device)

    def short() -> None:
        ready = plan.pack(given)
        assert ready is not None
        plan.release(ready[0])

    ways: dict[str, tuple[str, Callable[[], object]]] = {
        "packing": ("packing by the plan", short),
        "packing_long": (
            "packing the long way",
            lambda: long_way(signature, given, device),
        ),
    }
    return [
        row_of(name, label, [microseconds(call) for _ in range(ROUNDS)])
        for name, (label, call) in ways.items()
    ]


def triton_launch(given: tuple[Any, ...]) -> Callable[[], object] | None:
    """Return a launch of the same work by Triton, where it is installed."""
    try:
        import triton

        from benchmarks._launch_triton import affine
    except ImportError:
        return None
    x, weight, bias, out, rows, columns, scale = given
    assert triton.next_power_of_2(rows * columns) == N
    return lambda: affine[(1,)](x, weight, bias, out, rows, columns, scale, N)


def microseconds(call: Callable[[], object]) -> float:
    """Return the CPU's time for one of a few calls in a row."""
    begin = time.perf_counter()
    for _ in range(IN_A_ROW):
        call()
    return (time.perf_counter() - begin) / IN_A_ROW * 1e6


def row_of(name: str, label: str, samples: list[float]) -> Row:
    """Return what is stored of a call that took so many microseconds."""
    return {
        "name": name,
        "label": label,
        "median_us": statistics.median(samples),
        "low_us": min(samples),
        "high_us": max(samples),
    }


def show(row: Row) -> None:
    """Print a row."""
    ratio = f"torch's is {row['ratio']:.2f} of it" if "ratio" in row else ""
    print(f"{row['label']:<36}{row['median_us']:8.2f} us  {ratio}")


if __name__ == "__main__":
    sys.exit(main())
