"""Functions as a user times them: the call itself, the L2 cache cleared, in turn.

    python -m benchmarks.as_called                 measure and store
    python -m benchmarks.as_called --check         and hold against the floors
    python -m benchmarks.as_called --only-correct  no timing; also without a GPU

The other benchmarks time kernels with the launch queue kept full. Here each call is
made once, between two events, after 256 MB were written elsewhere
(``triton.testing.do_bench``): what the CPU does before its first launch counts where it
takes longer than that writing. It is shown beside. Ours, eager torch and torch.compile
take turns, and the ratio is the faster of the two over ours.
"""

from __future__ import annotations

import statistics
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from benchmarks import _command
from benchmarks._candidates import Row
from benchmarks._model import Model
from benchmarks.launch import microseconds
from solutions.flash_attention import decode_attention, flash_attention
from solutions.fusion import add_relu, bias_gelu, gelu, mul_tanh
from solutions.layernorm import layer_norm, layer_norm_relu, rms_norm
from solutions.matmul import matmul
from solutions.reduction import mean_abs, sum_all
from solutions.softmax import softmax
from solutions.tensor_cores import gemm
from solutions.transpose import transpose
from solutions.vector_add import vector_add

ROUNDS, ROUND_MS = 7, 40

FLOORS: dict[str, dict[str, float]] = {
    "nvidia-h200": {
        "vector_add": 0.95,
        "sum_all": 0.88,
        "mean_abs": 0.88,
        "layer_norm": 1.2,
        "layer_norm_backward": 1.1,
        "rms_norm": 1.0,
        "softmax": 2.0,
        "transpose": 1.1,
        "matmul": 1.0,
        "gemm": 0.6,
        "flash_attention": 0.9,
        "decode_attention": 0.95,
        "model_compiled": 1.0,
    }
}


class Call(NamedTuple):
    """What is timed.

    Args:
        name: of the row.
        ours: takes the operands.
        peer: torch's, likewise.
        shapes: of the operands.
        dtype: likewise.
        backward: whether the way back is timed, and not the way there.
        compiled: whether torch.compile has something to fuse.
    """

    name: str
    ours: Callable[..., torch.Tensor]
    peer: Callable[..., torch.Tensor]
    shapes: tuple[tuple[int, ...], ...]
    dtype: torch.dtype = torch.bfloat16
    backward: bool = False
    compiled: bool = True


def norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Normalise with ours."""
    return layer_norm(x, w.shape, w, b)


def torch_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Normalise with torch's."""
    return F.layer_norm(x, w.shape, w, b)


def calls(on_gpu: bool) -> Iterator[Call]:
    """Yield what is timed; small without a GPU."""
    rows, columns, side = (16384, 4096, 1024) if on_gpu else (8, 64, 16)
    half = torch.bfloat16 if on_gpu else torch.float32
    long = ((2**26,),) if on_gpu else ((1000,),)
    yield Call("vector_add", vector_add, torch.add, 2 * long, torch.float32)
    yield Call("sum_all", sum_all, torch.sum, long, torch.float32)
    yield Call("mean_abs", mean_abs, lambda x: x.abs().mean(), long, torch.float32)
    wide = ((rows, columns), (columns,), (columns,))
    yield Call("layer_norm", norm, torch_norm, wide, half)
    yield Call("layer_norm_backward", norm, torch_norm, wide, half, backward=True)
    yield Call(
        "rms_norm",
        lambda x, w: rms_norm(x, w.shape, w, 1e-6),
        lambda x, w: F.rms_norm(x, w.shape, w, 1e-6),
        wide[:2],
        half,
    )
    yield Call(
        "softmax", softmax, lambda x: torch.softmax(x, -1), ((rows, columns),), half
    )
    yield Call(
        "transpose", transpose, lambda x: x.mT.contiguous(), ((rows, columns),), half
    )
    yield from fused_calls(2 * side)
    square = ((side, side), (side, side))
    yield Call("matmul", matmul, torch.matmul, square, torch.float32, compiled=False)
    if on_gpu:
        yield Call("gemm", gemm, torch.matmul, square, compiled=False)
    heads = ((2, 16, 4 * side, 64),) * 3
    yield Call(
        "flash_attention",
        lambda q, k, v: flash_attention(q, k, v, causal=True),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        heads if on_gpu else ((1, 1, 16, 64),) * 3,
        half,
        compiled=False,
    )
    cache = ((8, 8, 2 * side, 128),) * 2 if on_gpu else ((1, 1, 16, 64),) * 2
    yield Call(
        "decode_attention",
        decode_attention,
        F.scaled_dot_product_attention,
        ((*cache[0][:2], 1, cache[0][3]), *cache),
        half,
        compiled=False,
    )


def fused_calls(side: int) -> Iterator[Call]:
    """Yield chains of the size at which one of the sources times its own."""
    one, two = ((side, side),), ((side, side),) * 2
    wide = ((side, side), (side,), (side,))
    single = torch.float32
    yield Call("gelu", gelu, F.gelu, one, single)
    yield Call("bias_gelu", bias_gelu, lambda x, b: F.gelu(x + b), wide[:2], single)
    yield Call("add_relu", add_relu, lambda x, y: F.relu(x + y), two, single)
    yield Call("mul_tanh", mul_tanh, lambda x, y: torch.tanh(x * y), two, single)
    yield Call(
        "layer_norm_relu",
        lambda x, w, b: layer_norm_relu(x, w.shape, w, b),
        lambda x, w, b: F.relu(torch_norm(x, w, b)),
        wide,
        single,
    )


def main() -> int:
    """Check, measure, store; return 0 if all is right and above its floor."""
    options = _command.command_line(__doc__).parse_args()
    return _command.run("as_called", options, check_values, measured, FLOORS)


def check_values(device: str) -> None:
    """Hold each against torch."""
    for call in calls(device == "cuda"):
        operands = operands_of(call, device)
        got, wanted = call.ours(*operands), call.peer(*operands)
        torch.testing.assert_close(got, wanted, rtol=3e-2, atol=3e-2)
        print(f"right on {device}: {call.name}")


def operands_of(call: Call, device: str) -> tuple[torch.Tensor, ...]:
    """Draw operands: leaves, where the way back is timed."""
    drawn = (torch.randn(shape, device=device) for shape in call.shapes)
    return tuple(t.to(call.dtype).requires_grad_(call.backward) for t in drawn)


def measured(options: Namespace) -> _command.Measured:
    """Time each call beside eager torch's and the compiled one's."""
    rows = []
    for call in calls(True):
        rows.append(timed(call))
        show(rows[-1])
        yield rows, {"rounds": ROUNDS, "round_ms": ROUND_MS}
    rows.append(compiled_model())
    show(rows[-1])
    yield rows, {"rounds": ROUNDS, "round_ms": ROUND_MS}


def compiled_model() -> Row:
    """Time a model of 12 layers, compiled without a break, beside itself in eager."""
    model = Model(12, 768, 12).to("cuda", torch.bfloat16)
    x = torch.randn(4, 1024, 768, device="cuda", dtype=torch.bfloat16)
    whole = torch.compile(model, fullgraph=True)
    with torch.no_grad():
        times = in_turn({"ours": lambda: whole(x), "eager": lambda: model(x)})
    return row_of("model_compiled", list(x.shape), "bfloat16", times)


def timed(call: Call) -> Row:
    """Time one call and its peers in turn."""
    operands = operands_of(call, "cuda")
    peers = {"eager": call.peer}
    if call.compiled:
        peers["compile"] = torch.compile(call.peer)
    functions = {"ours": call.ours, **peers}
    ways = {name: once(call, way, operands) for name, way in functions.items()}
    dtype = str(call.dtype).removeprefix("torch.")
    row = row_of(call.name, list(call.shapes[0]), dtype, in_turn(ways))
    return row | {f"{name}_host_us": host_us(way) for name, way in ways.items()}


def in_turn(ways: Mapping[str, Callable[[], object]]) -> dict[str, list[float]]:
    """Return each one's milliseconds, a figure a round."""
    from triton.testing import do_bench

    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            times[name].append(do_bench(way, warmup=5, rep=ROUND_MS))
    return times


def host_us(way: Callable[[], object]) -> float:
    """Return the microseconds that a call takes of the CPU, which waits for nothing."""
    samples = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        samples.append(microseconds(way))
    torch.cuda.synchronize()
    return statistics.median(samples)


def row_of(
    name: str, shape: list[int], dtype: str, times: Mapping[str, list[float]]
) -> Row:
    """Return what is stored: medians, and the faster peer of each round over ours."""
    row: Row = {
        "name": name,
        "label": f"`{name}`, as called",
        "shape": shape,
        "dtype": dtype,
    }
    row |= {f"{way}_ms": statistics.median(found) for way, found in times.items()}
    peers = [found for way, found in times.items() if way != "ours"]
    fastest = [min(each) for each in zip(*peers, strict=True)]
    pairs = zip(fastest, times["ours"], strict=True)
    row["ratio"] = statistics.median(peer / ours for peer, ours in pairs)
    row["ratio_eager"] = row["eager_ms"] / row["ours_ms"]
    return row


def once(
    call: Call, function: Callable[..., torch.Tensor], operands: tuple[Any, ...]
) -> Callable[[], object]:
    """Return what is called: the way there, or the way back of one that was made."""
    if not call.backward:
        return lambda: function(*operands)
    out = function(*operands)
    slopes = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, operands, slopes, retain_graph=True)


def show(row: Row) -> None:
    """Print a row."""
    others = ", ".join(
        f"{name} {row[f'{name}_ms']:.4f}"
        for name in ("eager", "compile")
        if f"{name}_ms" in row
    )
    host = ", ".join(
        f"{name} {row[f'{name}_host_us']:.0f}"
        for name in ("ours", "eager", "compile")
        if f"{name}_host_us" in row
    )
    print(
        f"{row['name']:<22}{row['ours_ms']:.4f} ms ({others}), "
        f"{row['ratio']:.2f} of the faster; host us: {host}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
