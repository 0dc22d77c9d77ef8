"""Chapter 11 on a GPU: fused chains right, then timed beside eager and torch.compile.

    python -m benchmarks.fusion                 measure and store
    python -m benchmarks.fusion --check         and hold against the floors
    python -m benchmarks.fusion --only-correct  no timing; also without a GPU

Each candidate is compared with a copy of as many bytes in its own round, and ours with
torch's own (``_peers``). Bytes are what must move: every operand read once, every
result written once, however often a chain of kernels reads and writes.

Host time is not in it: ``as_called`` has the same chains as a user times them.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

import kernelwright as kw
from benchmarks import _command, _peers
from benchmarks._candidates import Candidate, Row, short
from benchmarks._sources import rung
from benchmarks._sweep import Sweep, Sweeps
from solutions import fusion
from solutions.fusion import launch
from solutions.fusion.expression import traced
from solutions.fusion.layer_norm_relu_fused import layer_norm_relu_fused
from solutions.fusion.mul_tanh_triton import mul_tanh as mul_tanh_triton
from solutions.layernorm import layer_norm_relu

ROWS, COLUMNS = 16384, 8192
SIDE = 8192  # of the ten chains
HEADS, LENGTH, WIDTH = (4, 16), 4096, 64
P = 0.1  # the share that dropout drops
DTYPES = (torch.bfloat16, torch.float32)
ROUNDS = 5
SEED = 20261123
CUPY = (4096, 1024)
"""Shape at which one source compares its GELU with CuPy's expressions."""
SOURCES = Path(fusion.__file__).parent

# Lowest ratio to the better peer that is no regression, by device.
FLOORS: dict[str, dict[str, float]] = {
    "nvidia-h200": {
        "gelu_bfloat16": 1.31,
        "gelu_tanh_bfloat16": 1.11,
        "bias_gelu_bfloat16": 1.55,
        "add_relu_bfloat16": 0.97,
        "mul_tanh_bfloat16": 0.96,
        "gelu_dropout_bfloat16": 2.95,
        "layer_norm_relu_bfloat16": 1.1,
        "gelu_dropout_backward_bfloat16": 1.51,
        "gelu_float32": 0.95,
        "gelu_tanh_float32": 0.94,
        "bias_gelu_float32": 0.95,
        "add_relu_float32": 0.97,
        "mul_tanh_float32": 0.97,
        "gelu_dropout_float32": 1.74,
        "layer_norm_relu_float32": 0.94,
        "gelu_dropout_backward_float32": 1.04,
        "attention_score_bfloat16": 2.25,
        "attention_score_float32": 1.02,
        "ten_silu_gate": 0.97,
        "ten_softplus": 1.1,
        "ten_mish": 1.61,
        "ten_hard_swish": 0.92,
        "ten_huber": 0.97,
        "ten_lerp": 0.97,
        "ten_momentum": 0.96,
        "ten_squared_relu": 0.97,
        "ten_cosine_gate": 1.03,
        "ten_smooth_step": 0.97,
    }
}

Function = Callable[..., torch.Tensor]


class Chain(NamedTuple):
    """A chain, fused by us, and as torch writes it.

    Args:
        name: of the row.
        ours: takes the operands.
        theirs: likewise.
        rows: how many operands are as large as the result; a row of it follows for each
            ``bias``.
        bias: how many are rows.
        formula: the same by the simplest operations, a kernel each.
    """

    name: str
    ours: Function
    theirs: Function
    rows: int = 1
    bias: int = 0
    formula: Function | None = None


def gelu_dropout(x: torch.Tensor) -> torch.Tensor:
    """Drop a tenth."""
    return fusion.gelu_dropout(x, P, seed=SEED)


def norm_relu(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Normalise and cut off, by ours."""
    return layer_norm_relu(x, w.shape, w, b)


def written_out(x: torch.Tensor) -> torch.Tensor:
    """Take GELU by five operations, as the chapter does."""
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def written_out_tanh(x: torch.Tensor) -> torch.Tensor:
    """Take GELU by tanh's form, in eight operations."""
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return 0.5 * x * (1 + torch.tanh(inner))


CHAINS = (
    Chain("gelu", fusion.gelu, F.gelu, formula=written_out),
    Chain(
        "gelu_tanh",
        lambda x: fusion.gelu(x, "tanh"),
        lambda x: F.gelu(x, approximate="tanh"),
        formula=written_out_tanh,
    ),
    Chain("bias_gelu", fusion.bias_gelu, lambda x, b: F.gelu(x + b), 1, 1),
    Chain("add_relu", fusion.add_relu, lambda x, y: F.relu(x + y), 2),
    Chain("mul_tanh", fusion.mul_tanh, lambda x, y: torch.tanh(x * y), 2),
    Chain("gelu_dropout", gelu_dropout, lambda x: F.dropout(F.gelu(x), P)),
    Chain(
        "layer_norm_relu",
        norm_relu,
        lambda x, w, b: F.relu(F.layer_norm(x, w.shape, w, b)),
        1,
        2,
    ),
)
# Chains that nobody tuned anything for: activations of papers, losses, gates, updates.
TEN: tuple[tuple[str, int, Function], ...] = (
    ("silu_gate", 2, lambda x, y: F.silu(x) * y),
    ("softplus", 1, lambda x: torch.log1p(torch.exp(-x.abs())) + F.relu(x)),
    ("mish", 1, lambda x: x * torch.tanh(torch.log1p(torch.exp(x)))),
    ("hard_swish", 1, lambda x: x * torch.clamp(x + 3, 0, 6) / 6),
    ("huber", 2, lambda x, y: torch.where(
        (x - y).abs() < 1, 0.5 * (x - y) ** 2, (x - y).abs() - 0.5)),
    ("lerp", 3, lambda x, y, t: x + torch.sigmoid(t) * (y - x)),
    ("momentum", 3, lambda w, m, g: w - 0.01 * (0.9 * m + g)),
    ("squared_relu", 1, lambda x: F.relu(x).square()),
    ("cosine_gate", 2, lambda x, y: torch.cos(x) * torch.sin(y) + x * y),
    ("smooth_step", 3, lambda x, a, b: torch.maximum(torch.minimum(
        (x - a) * 0.5, b), a * 0.1) ** 3 - 2 * x),
)  # fmt: skip


def main() -> int:
    """Check, measure, store; return 0 if all is right and above its floor."""
    options = _command.command_line(__doc__).parse_args()
    return _command.run("fusion", options, check_values, measured, FLOORS, "of_peer")


def measured(options: argparse.Namespace) -> _command.Measured:
    """Time every candidate."""
    rows = _peers.beside(list(candidates()), ROUNDS)
    _peers.compare_with_torch(rows)
    compare_with_compiled(rows)
    yield rows, {"copy_gbps": round(_peers.copy_gbps(rows), 1)}


def compare_with_compiled(rows: Sequence[Row]) -> None:
    """Add to each of our rows ``of_compile``: torch.compile's time over its own."""
    times = {row["name"]: row["median_ms"] for row in rows}
    for row in rows:
        if f"{row['name']}_compile" in times:
            row["of_compile"] = times[f"{row['name']}_compile"] / row["median_ms"]


def check_values(device: str) -> None:
    """Hold each against torch in float64; of dropout what was kept."""
    dtypes = DTYPES if device == "cuda" else (torch.float32,)
    for dtype, chain in itertools.product(dtypes, CHAINS):
        given = operands(chain, 64, 128, dtype, device)
        got = chain.ours(*given).double()
        if chain.name == "gelu_dropout":
            right = torch.where(got == 0, 0.0, F.gelu(given[0].double()) / (1 - P))
        else:
            right = chain.theirs(*(t.double() for t in given))
        near = 8 * torch.finfo(dtype).eps
        torch.testing.assert_close(got, right, rtol=near, atol=near)
        print(f"right on {device}: {chain.name}, {short(dtype)}")
    for name, count, function in TEN:
        given = tuple(torch.randn(33, 40, device=device) for _ in range(count))
        right = function(*(t.double() for t in given))
        torch.testing.assert_close(
            fusion.fuse(function)(*given).double(), right, rtol=1e-4, atol=1e-5
        )
        print(f"right on {device}: {name}")
    for name, run, right in rungs_of(24, 512, device):
        near = 8 * torch.finfo(right.dtype).eps
        got = run()
        if name == "gelu_dropout":
            right = torch.where(got == 0, 0.0, right)
        torch.testing.assert_close(got, right, rtol=near, atol=near)
        print(f"right on {device}: rung {name}")


def operands(
    chain: Chain, rows: int, columns: int, dtype: torch.dtype, device: str
) -> tuple[torch.Tensor, ...]:
    """Draw a chain's operands."""
    shapes = [(rows, columns)] * chain.rows + [(columns,)] * chain.bias
    return tuple(torch.randn(shape, device=device).to(dtype) for shape in shapes)


def versions(chain: Chain) -> dict[str, tuple[str, Function]]:
    """Name ours, and the peers."""
    found = {"": (f"`{chain.name}`", chain.ours)}
    found |= _peers.torchs(chain.theirs, f", {chain.name}")
    if chain.formula:
        label = f"torch eager, {chain.name} written out"
        found["_formula"] = (label, chain.formula)
    return found


def candidates() -> Iterator[Candidate]:
    """Name everything whose figures are stored; the copies first."""
    for dtype in DTYPES:
        x = torch.empty(ROWS, COLUMNS, device="cuda", dtype=dtype)
        yield _peers.copy_of(x, f"copy_{2 * x.nbytes}")
    for dtype in DTYPES:
        for chain in CHAINS:
            given = operands(chain, ROWS, COLUMNS, dtype, "cuda")
            moved = sum(t.nbytes for t in given) + given[0].nbytes
            yield from _peers.each(
                versions(chain), f"{chain.name}_{short(dtype)}",
                f"{{}}, {short(dtype)}", given, moved, short(dtype),
            )  # fmt: skip
        yield from backwards(dtype)
    yield from scores()
    yield from tens()
    yield from cupy_gelus()
    yield from rungs()


def backwards(dtype: torch.dtype) -> Iterator[Candidate]:
    """Name the way back through two chains, by autograd for all.

    Of GELU and dropout x and the slope are read and a gradient is written; of tanh(x y)
    three are read and two written.
    """
    for name, passes in (("gelu_dropout", 3), ("mul_tanh", 5)):
        chain = next(c for c in CHAINS if c.name == name)

        def drawn(chain: Chain = chain) -> _peers.Graph:
            given = operands(chain, ROWS, COLUMNS, dtype, "cuda")
            return tuple(t.requires_grad_() for t in given), torch.randn_like(given[0])

        yield from _peers.each(
            _peers.backwards(versions(chain), drawn), f"{name}_backward_{short(dtype)}",
            f"{{}}, backward, {short(dtype)}", (),
            passes * ROWS * COLUMNS * dtype.itemsize, short(dtype),
        )  # fmt: skip


def _scores(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ k.mT * WIDTH**-0.5, -1)


def scores() -> Iterator[Candidate]:
    """Name attention's weights over 4,096 tokens."""
    chain = Chain("attention_score", fusion.attention_score, _scores)
    for dtype in (torch.bfloat16, torch.float32):
        heads = HEADS if dtype == torch.bfloat16 else (1, HEADS[1])
        shape = (*heads, LENGTH, WIDTH)
        q, k = (torch.randn(shape, device="cuda").to(dtype) for _ in range(2))
        moved = (heads[0] * heads[1] * LENGTH * LENGTH) * dtype.itemsize + 2 * q.nbytes
        yield from _peers.each(
            versions(chain), f"attention_score_{short(dtype)}", f"{{}}, {short(dtype)}",
            (q, k), moved, short(dtype), facts={"shape": list(shape)},
        )  # fmt: skip


def tens() -> Iterator[Candidate]:
    """Name ten chains that are fused as they come."""
    for name, count, function in TEN:
        chain = Chain(name, fusion.fuse(function), function, count)
        given = operands(chain, SIDE, SIDE, torch.bfloat16, "cuda")
        moved = (count + 1) * given[0].nbytes
        yield from _peers.each(
            versions(chain), f"ten_{name}", "{}", given, moved, "bfloat16"
        )


def cupy_gelus() -> Iterator[Candidate]:
    """Name GELU as CuPy's expressions, a kernel an operation; as one of its kernels."""
    import cupy

    x = torch.randn(CUPY, device="cuda")
    root = math.sqrt(2 / math.pi)
    fused = cupy.ElementwiseKernel(
        "float32 a",
        "float32 out",
        f"out = 0.5f * a * (1 + tanhf({root}f * (a + 0.044715f * a * a * a)))",
        "gelu_tanh",
    )

    def expression(x: torch.Tensor) -> Any:
        a = cupy.asarray(x)
        return 0.5 * a * (1 + cupy.tanh(root * (a + 0.044715 * a**3)))

    chain = next(c for c in CHAINS if c.name == "gelu_tanh")
    every = versions(chain)
    every["_formula"] = ("CuPy's expressions, gelu_tanh", expression)
    every["_elementwise"] = ("CuPy, a kernel", lambda x: fused(cupy.asarray(x)))
    label = f"{{}}, {CUPY[0]} x {CUPY[1]} float32"
    yield from _peers.each(every, "cupy_gelu", label, (x,), 2 * x.nbytes)


# --- the chapter's own kernels ----------------------------------------------------

Run = Callable[[], torch.Tensor]
_RUNG_LABELS = {
    "gelu": "one thread an element",
    "add_relu": "eight halves a thread",
    "mul_tanh": "Triton, 1,024 elements a program",
    "bias_gelu": "four columns a thread, down the rows",
    "gelu_dropout": "four elements a thread, and their mask",
    "layer_norm_relu": "Triton, a row a program",
}
# What each reads and writes, in passes over the matrix.
_RUNG_PASSES = {"add_relu": 3, "mul_tanh": 3}


def rungs_of(
    rows: int, columns: int, device: str
) -> Iterator[tuple[str, Run, torch.Tensor]]:
    """Give each rung's launch, and what it should make, by its name."""
    n = rows * columns
    x = torch.randn(rows, columns, device=device)
    out = torch.empty_like(x)
    w, b = (torch.randn(columns, device=device) for _ in range(2))
    h, g = x.half(), torch.randn(rows, columns, device=device).half()
    sums = torch.empty_like(h)
    across = kw.cdiv(columns, 1024)
    gelu = rung(SOURCES, "gelu")[kw.cdiv(n, 256), 256]
    pair = rung(SOURCES, "add_relu")[kw.cdiv(n, 2048), 256]
    bias = rung(SOURCES, "bias_gelu")[(across, kw.cdiv(rows, 16)), 256]
    drop = rung(SOURCES, "gelu_dropout")[kw.cdiv(n, 1024), 256]

    def into(out: torch.Tensor, launch: Callable[..., object], *given: Any) -> Run:
        def run() -> torch.Tensor:
            launch(*given)
            return out

        return run

    yield "gelu", into(out, gelu, x, out, n), F.gelu(x)
    yield "add_relu", into(sums, pair, h, g, sums, n), F.relu(h + g)
    y = torch.randn_like(x)
    yield "mul_tanh", lambda: mul_tanh_triton(x, y), torch.tanh(x * y)
    right = F.gelu(x + b, approximate="tanh")
    yield "bias_gelu", into(out, bias, x, b, out, rows, columns), right
    right = F.gelu(x) / (1 - P)
    yield "gelu_dropout", into(out, drop, x, out, n, SEED, P), right
    right = F.relu(F.layer_norm(x, w.shape, w, b))
    yield "layer_norm_relu", lambda: layer_norm_relu_fused(x, w, b, 1e-5), right


def rungs() -> Iterator[Candidate]:
    """Name the rungs: of fp32, but ``add_relu``, which is of fp16."""
    for name, run, right in rungs_of(ROWS, COLUMNS, "cuda"):
        moved = _RUNG_PASSES.get(name, 2) * right.nbytes
        label = f"{_RUNG_LABELS[name]}, {short(right.dtype)}"
        yield Candidate(f"rung_{name}", label, run, (), moved, short(right.dtype))


# --- other launches -----------------------------------------------------------------

# Chains whose kernels do most, or little, for their bytes.
SWEPT = ("gelu", "gelu_tanh", "bias_gelu", "add_relu")


def sweep(chain: Chain, dtype: torch.dtype) -> Sweep:
    """Name how many threads may make a block."""
    given = operands(chain, ROWS, COLUMNS, dtype, "cuda")
    text = str(traced(chain.theirs, len(given)))
    moved = (1 + chain.rows) * given[0].nbytes

    def run(threads: int) -> torch.Tensor:
        launch.THREADS = threads
        made: torch.Tensor = launch.computed(text, given, 0)
        return made

    def named(name: str, function: Callable[..., object], *given: Any) -> Candidate:
        return Candidate(name, name, function, given, moved, short(dtype))

    found = [named(f"{n} threads", run, n) for n in (64, 128, 256, 512)]
    copied = torch.empty(moved // 2, dtype=torch.uint8, device="cuda")
    compiled = named("torch.compile", _peers.compiled(chain.theirs), *given)
    peers = [_peers.copy_of(copied, "copy"), compiled]
    title = f"{chain.name}, {short(dtype)}, {ROWS} x {COLUMNS}"
    return Sweep(title, found, peers)


def sweeps() -> Sweeps:
    """Sweep the launch of some chains."""
    chains = [chain for chain in CHAINS if chain.name in SWEPT]
    every = itertools.product(chains, (torch.float32, torch.bfloat16))
    return [partial(sweep, *one) for one in every]


if __name__ == "__main__":
    sys.exit(main())
