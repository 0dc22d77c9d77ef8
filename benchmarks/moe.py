"""Mixture of experts beside torch: ``python -m benchmarks.moe``.

    python -m benchmarks.moe --check         # exit 1 below a floor of this device
    python -m benchmarks.moe --only-correct  # no timing; also without a GPU
    python -m benchmarks.moe --out FOLDER    # not into benchmarks/results

The peer of a layer is what torch has for it today: softmax and topk, a sort,
``torch._grouped_mm`` twice, and an addition by index; eager or compiled, the better.
FLOPs are those of the experts' products alone. Routing, permutation and combination are
held against a copy of the bytes that they must move, and the prefix sum against the
better of CuPy's, which copies before it calls CUB, and torch's. The ladder's ragged
product is timed in fp16, beside a loop of products and ``torch._grouped_mm``, whose
fast kernels take bf16 alone.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from benchmarks import _command, _peers
from benchmarks._candidates import Candidate, Row
from benchmarks._sweep import Sweep, Sweeps
from solutions.moe import (
    grouped,
    grouped_gemm,
    hopper_grouped,
    moe_mlp,
    permutation,
    permute,
    prefix_sum,
    route,
    routing,
    unpermute,
)
from solutions.moe import ragged_gemm as ladder
from solutions.moe.experts import height_for
from solutions.moe.grouped import TALL, Segments

DTYPE = torch.bfloat16
ROUNDS, SECONDS = 5, 0.1
NUMBERS = 2**28
"""Of the prefix sum."""

# Lowest ratio to the peer that is no regression, by device.
FLOORS = {
    "nvidia-h200": {
        "moe_8192_64": 1.8,
        "moe_8192_64_training": 1.29,
        "moe_32768_128": 2.05,
        "moe_32768_128_training": 1.43,
        "around_moe_8192_64": 0.66,
        "around_moe_32768_128": 0.76,
        "prefix_sum": 1.05,
    }
}


class Sizes(NamedTuple):
    """A layer's sizes."""

    tokens: int
    experts: int
    d_model: int
    d_ff: int
    k: int

    @property
    def name(self) -> str:
        """What rows are called by."""
        return f"moe_{self.tokens}_{self.experts}"

    @property
    def title(self) -> str:
        """As a table names them."""
        return f"{self.tokens:,} tokens, {self.experts} experts"

    @property
    def flops(self) -> float:
        """Of the experts' products, one way."""
        return 6.0 * self.tokens * self.k * self.d_model * self.d_ff


LAYERS = (Sizes(8192, 64, 2048, 1024, 8), Sizes(32768, 128, 2048, 768, 8))
SMALL = Sizes(12, 4, 16, 24, 2)


def main() -> int:
    """Check, measure, store; return 0 if all is right and above its floor."""
    options = _command.command_line(__doc__).parse_args()
    return _command.run("moe", options, check_values, measured, FLOORS, "of_peer")


def measured(options: argparse.Namespace) -> _command.Measured:
    """Time the layers, what surrounds their products, and the prefix sum."""
    rows: list[Row] = []
    for todo in map(list, groups()):
        found = _peers.beside(todo, ROUNDS, SECONDS)
        if todo[0].flops:
            _peers.compare_with_torch(found)
        else:
            for row in found:
                row["of_peer"] = row.get("peer", row["ratio"])
        rows += found
        yield rows, {}


def groups() -> Iterator[Iterator[Candidate]]:
    """Yield what is timed together."""
    for sizes in LAYERS:
        yield layer(sizes, there_and_back=False)
        yield layer(sizes, there_and_back=True)
    yield from map(around, LAYERS)
    yield scans()
    yield rungs(LAYERS[0])


def ours(x: Any, router: Any, gate_up: Any, down: Any, k: int) -> torch.Tensor:
    """Compute the layer."""
    weights, chosen = route(F.linear(x, router), k)
    return moe_mlp(x, weights, chosen, gate_up, down)


def theirs(x: Any, router: Any, gate_up: Any, down: Any, k: int) -> torch.Tensor:
    """Compute the layer by torch's ragged product."""
    experts = len(router)
    shares = F.softmax(F.linear(x, router), dim=-1, dtype=torch.float32)
    weights, chosen = shares.topk(k)
    weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
    flat = chosen.flatten()
    counts = torch.histc(flat.float(), experts, 0, experts - 1)
    ends = counts.cumsum(0).to(torch.int32)
    order = flat.argsort()
    token = order // k
    both = torch._grouped_mm(x[token], gate_up.mT, offs=ends)
    gate, up = both.chunk(2, dim=-1)
    y = torch._grouped_mm(F.silu(gate) * up, down.mT, offs=ends)
    y = y * weights.flatten()[order, None]
    return torch.zeros_like(x).index_add(0, token, y)


def operands(sizes: Sizes, device: str, dtype: torch.dtype) -> tuple[Any, ...]:
    """Draw tokens, a router and experts."""

    def drawn(*shape: int, scale: float = 1.0) -> torch.Tensor:
        return (scale * torch.randn(shape, device=device)).to(dtype)

    tokens, experts, d_model, d_ff, _ = sizes
    return (
        drawn(tokens, d_model),
        drawn(experts, d_model, scale=d_model**-0.5),
        drawn(experts, 2 * d_ff, d_model, scale=d_model**-0.5),
        drawn(experts, d_model, d_ff, scale=d_ff**-0.5),
    )


def check_values(device: str) -> None:
    """Hold the layer against a loop over experts in float64, and sums against torch."""
    dtype = DTYPE if device == "cuda" else torch.float32
    for sizes in LAYERS if device == "cuda" else (SMALL,):
        given = operands(sizes, device, dtype)
        x, router, gate_up, down = given
        got = ours(*given, sizes.k)
        weights, chosen = route(F.linear(x, router), sizes.k)
        wanted = torch.zeros_like(x, dtype=torch.float64)
        for e in range(sizes.experts):
            token, slot = (chosen == e).nonzero(as_tuple=True)
            gate, up = (x[token].double() @ gate_up[e].double().mT).chunk(2, -1)
            y = (F.silu(gate) * up) @ down[e].double().mT
            wanted.index_add_(0, token, y * weights[token, slot, None])
        error = float((got - wanted).abs().max() / wanted.abs().max())
        assert error < 8 * torch.finfo(dtype).eps, (sizes.name, error)
        print(f"right on {device}: {sizes.name}, off by {error:.1e} of the largest")
    n = 2**24 if device == "cuda" else 5000
    numbers = torch.randint(-9, 9, (n,), dtype=torch.int32, device=device)
    assert torch.equal(prefix_sum(numbers), numbers.cumsum(0).to(torch.int32))
    print(f"right on {device}: prefix_sum")
    x, weights, offsets, places = ragged(
        SMALL if device == "cpu" else LAYERS[0], device
    )
    wanted = torch.cat(by_a_loop(x.double(), weights.double(), places))
    got = ladder.grouped_gemm(x, weights, offsets)
    error = float((got - wanted).abs().max() / wanted.abs().max())
    assert error < 2 * torch.finfo(got.dtype).eps, ("ragged_gemm", error)
    print(f"right on {device}: ragged_gemm, off by {error:.1e} of the largest")


def layer(sizes: Sizes, there_and_back: bool) -> Iterator[Candidate]:
    """Name a layer, ours and the peers', one way or both."""
    given = operands(sizes, "cuda", DTYPE)
    name = sizes.name + "_training" * there_and_back
    slope = torch.randn_like(given[0])
    if there_and_back:
        given = tuple(one.requires_grad_() for one in given)

    def both(function: Callable[..., torch.Tensor]) -> Callable[[], Any]:
        return _peers.there_and_back(lambda *g: function(*g, sizes.k), given, slope)

    every = {**_peers.torchs(theirs), "": ("ours", ours)}
    arguments: tuple[Any, ...] = (*given, sizes.k)
    if there_and_back:
        every = {suffix: (label, both(run)) for suffix, (label, run) in every.items()}
        arguments = ()
    return _peers.each(
        every, name, f"{sizes.title}, {{}}", arguments, dtype="bfloat16",
        flops=sizes.flops * (3 if there_and_back else 1), peers=(f"{name}_eager",),
    )  # fmt: skip


def around(sizes: Sizes) -> Iterator[Candidate]:
    """Name what surrounds the products, and a copy of as many bytes."""
    x, router, *_ = operands(sizes, "cuda", DTYPE)
    logits = F.linear(x, router)

    def moved(x: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        weights, chosen = route(logits, sizes.k)
        moved = permute(x, chosen, sizes.experts)
        return unpermute(moved.x, moved.rows, weights)

    nbytes = logits.nbytes + 2 * (1 + sizes.k) * x.nbytes
    copied = torch.empty(nbytes // 2, dtype=torch.uint8, device="cuda")
    yield _peers.copy_of(copied, f"copy_{sizes.tokens}")
    yield Candidate(
        f"around_{sizes.name}", f"{sizes.title}: route, permute, unpermute", moved,
        (x, logits), nbytes, "bfloat16",
    )  # fmt: skip


def scans() -> Iterator[Candidate]:
    """Name prefix sums: ours, CUB's as CuPy and torch call it, and a copy."""
    import cupy

    x = torch.randint(-9, 9, (NUMBERS,), dtype=torch.int32, device="cuda")
    yield _peers.copy_of(x, "copy")
    for name, label, function in (
        ("prefix_sum_cub", "CUB, through CuPy", _by_cupy(cupy)),
        ("prefix_sum_torch", "torch.cumsum", _by_torch),
        ("prefix_sum", "`prefix_sum`", prefix_sum),
    ):
        yield Candidate(
            name, f"{label}, {NUMBERS:,} numbers", function, (x,), 2 * x.nbytes,
            "int32", peers=("prefix_sum_cub", "prefix_sum_torch"),
        )  # fmt: skip


def ragged(sizes: Sizes, device: str) -> tuple[Any, ...]:
    """Draw rows, experts' first matrices, and where rows end, on the host too."""
    tokens, experts, d_model, d_ff, k = sizes
    # The most popular one has three times the rows of the least.
    shares = torch.linspace(0.5, 1.5, experts, device="cpu").roll(experts // 3)
    ends = (shares.cumsum(0) / shares.sum() * tokens * k).round().int()
    x = torch.randn(tokens * k, d_model, device=device).half()
    weights = torch.randn(experts, d_model, 2 * d_ff, device=device)
    weights = (weights * d_model**-0.5).half()
    bounds = [0, *ends.tolist()]
    return x, weights, ends.to(device=device), [*pairwise(bounds)]


def by_a_loop(x: Any, weights: Any, places: list[tuple[int, int]]) -> list[Any]:
    """Multiply expert by expert; the host was told before how many rows each has."""
    return [
        x[begin:end] @ weight
        for (begin, end), weight in zip(places, weights, strict=True)
    ]


def rungs(sizes: Sizes) -> Iterator[Candidate]:
    """Name ragged products: a loop, torch's, the ladder's and the package's."""
    x, weights, offsets, places = ragged(sizes, "cuda")
    bf16 = (x.to(DTYPE), weights.to(DTYPE))
    versions: tuple[tuple[str, str, Callable[..., Any], tuple[Any, ...]], ...] = (
        ("loop", "a loop of products", by_a_loop, (x, weights, places)),
        (
            "torch",
            "torch._grouped_mm, bf16",
            lambda x, w, offsets: torch._grouped_mm(x, w, offs=offsets),
            (*bf16, offsets),
        ),
        ("ladder", "ragged_gemm.py", ladder.grouped_gemm, (x, weights, offsets)),
        ("ours", "`grouped_gemm`", grouped_gemm, (x, weights, offsets)),
    )
    for name, label, function, given in versions:
        yield Candidate(
            f"ragged_{name}", f"{label}, {sizes.experts} experts", function, given,
            dtype="bfloat16" if name == "torch" else "float16",
            flops=2.0 * x.numel() * weights.shape[2], peers=("ragged_torch",),
        )  # fmt: skip


def _by_cupy(cupy: Any) -> Callable[[torch.Tensor], Any]:
    return lambda x: cupy.cumsum(cupy.asarray(x), dtype=cupy.int32)


def _by_torch(x: torch.Tensor) -> torch.Tensor:
    return torch.cumsum(x, 0, dtype=torch.int32)


# --- a layer's parts ----------------------------------------------------------------


def parts(sizes: Sizes) -> Iterator[Candidate]:
    """Name what a layer launches, there and back, on its own operands.

    Parts that move bytes are beside a copy's speed, products beside cuBLAS's.
    """
    _, experts, d_model, d_ff, k = sizes
    x, router, gate_up, down = operands(sizes, "cuda", DTYPE)
    logits = F.linear(x, router)
    weights, chosen = routing.routed(logits, k, True)
    pairs, height = chosen.numel(), height_for(chosen.numel(), experts)
    rows, begins, ends = permutation.placed(chosen, experts, TALL, 2**31 - 1)
    segments = Segments(begins, ends, TALL)
    tiles = grouped.listed(segments, height)
    moved = permutation.sent(x, rows, None, *segments, height, whole=False)
    hidden, both = hopper_grouped.grouped(
        moved, gate_up.mT, tiles, gated=True, keep=True
    )
    assert both is not None
    y, _ = hopper_grouped.grouped(hidden, down.mT, tiles)
    wide, narrow = pairs * d_model * 2, pairs * d_ff * 2
    one = 2.0 * pairs * d_model * d_ff

    def moves(name: str, run: Any, nbytes: int) -> Candidate:
        return Candidate(name, name, run, (), nbytes, "bfloat16")

    def computes(name: str, run: Any, flops: float) -> Candidate:
        return Candidate(name, name, run, (), 0, "bfloat16", flops=flops)

    copied = torch.empty(2**29, dtype=torch.uint8, device="cuda")
    again = torch.empty_like(copied)
    yield moves("copy of 512 MiB", lambda: again.copy_(copied), 2 * copied.nbytes)
    yield moves("router", lambda: F.linear(x, router), x.nbytes)
    yield moves("route", lambda: routing.routed(logits, k, True), logits.nbytes)
    yield moves(
        "place",
        lambda: permutation.placed(chosen, experts, TALL, 2**31 - 1),
        12 * pairs,
    )
    yield moves("list tiles", lambda: grouped.listed(segments, height), tiles.nbytes)
    yield moves(
        "send",
        lambda: permutation.sent(x, rows, None, *segments, height, whole=False),
        x.nbytes + wide,
    )
    yield moves(
        "gather", lambda: permutation.gathered(y, rows, weights), x.nbytes + wide
    )
    yield moves(
        "swiglu backward",
        lambda: permutation.swiglu_backward(both, hidden, rows, weights, *segments),
        6 * narrow,
    )
    for keep in (False, True):
        yield computes(
            "gated product" + ", kept" * keep,
            lambda keep=keep: hopper_grouped.grouped(
                moved, gate_up.mT, tiles, gated=True, keep=keep
            ),
            2 * one,
        )
    for name, a, matrices, flops in (
        ("down", hidden, down.mT, one),
        ("back through down", moved, down, one),
        ("back through gate and up", both, gate_up, 2 * one),
    ):
        yield computes(
            name, lambda a=a, m=matrices: hopper_grouped.grouped(a, m, tiles), flops
        )
    for name, a, b, flops in (
        ("gradient of down", moved, hidden, one),
        ("gradient of gate and up", both, moved, 2 * one),
    ):
        yield computes(
            name, lambda a=a, b=b: grouped.weights_gradient(a, b, segments), flops
        )
    flat, matrix = moved[:pairs], gate_up[0]
    yield computes("cuBLAS, rows by one expert", lambda: flat @ matrix.mT, 2 * one)


def sweeps() -> Sweeps:
    """Time the parts of each layer: so one sees where its time goes."""
    return [partial(lambda s: Sweep(s.name, [*parts(s)]), sizes) for sizes in LAYERS]


if __name__ == "__main__":
    sys.exit(main())
