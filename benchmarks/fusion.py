"""Chapter 11 on a GPU: fused chains right, then timed beside eager and torch.compile.

    python -m benchmarks.fusion                 measure and store
    python -m benchmarks.fusion --check         and hold against the floors
    python -m benchmarks.fusion --only-correct  no timing; also without a GPU

Each candidate is compared with a copy of as many bytes in its own round, and ours with
torch's own (``_peers``). Bytes are what must move: every operand read once, every
result written once, however often a chain of kernels reads and writes.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from benchmarks import _command, _peers
from benchmarks._candidates import Candidate, short
from solutions import fusion
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
    """

    name: str
    ours: Function
    theirs: Function
    rows: int = 1
    bias: int = 0


def gelu_dropout(x: torch.Tensor) -> torch.Tensor:
    """Drop a tenth."""
    return fusion.gelu_dropout(x, P, seed=SEED)


def norm_relu(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Normalise and cut off, by ours."""
    return layer_norm_relu(x, w.shape, w, b)


CHAINS = (
    Chain("gelu", fusion.gelu, F.gelu),
    Chain(
        "gelu_tanh",
        lambda x: fusion.gelu(x, "tanh"),
        lambda x: F.gelu(x, approximate="tanh"),
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
    rows, copy_gbps = _peers.beside_copies(list(candidates()), ROUNDS)
    _peers.compare_with_torch(rows)
    yield rows, {"copy_gbps": round(copy_gbps, 1)}


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
    for name, count, chain in TEN:
        given = tuple(torch.randn(33, 40, device=device) for _ in range(count))
        right = chain(*(t.double() for t in given))
        torch.testing.assert_close(
            fusion.fuse(chain)(*given).double(), right, rtol=1e-4, atol=1e-5
        )
        print(f"right on {device}: {name}")


def operands(
    chain: Chain, rows: int, columns: int, dtype: torch.dtype, device: str
) -> tuple[torch.Tensor, ...]:
    """Draw a chain's operands."""
    shapes = [(rows, columns)] * chain.rows + [(columns,)] * chain.bias
    return tuple(torch.randn(shape, device=device).to(dtype) for shape in shapes)


def versions_of(chain: Chain) -> Iterator[tuple[str, str, Function]]:
    """Name ours, and the peers."""
    yield "", f"`{chain.name}`", chain.ours
    yield "_eager", f"torch eager, {chain.name}", chain.theirs
    yield "_compile", f"torch.compile, {chain.name}", _peers.compiled(chain.theirs)


def candidates() -> Iterator[Candidate]:
    """Name everything whose figures are stored; the copies first."""
    for dtype in DTYPES:
        x = torch.empty(ROWS, COLUMNS, device="cuda", dtype=dtype)
        yield _peers.copy_of(x, f"copy_{2 * x.nbytes}")
    for dtype in DTYPES:
        for chain in CHAINS:
            given = operands(chain, ROWS, COLUMNS, dtype, "cuda")
            moved = sum(t.nbytes for t in given) + given[0].nbytes
            for suffix, label, function in versions_of(chain):
                name = f"{chain.name}_{short(dtype)}{suffix}"
                label = f"{label}, {short(dtype)}"
                yield Candidate(name, label, function, given, moved, short(dtype))
        yield from backwards(dtype)
    yield from scores()
    yield from tens()
    yield from cupy_gelus()


def backwards(dtype: torch.dtype) -> Iterator[Candidate]:
    """Name the way back through GELU and dropout, by autograd for all."""
    chain = next(c for c in CHAINS if c.name == "gelu_dropout")
    for suffix, label, function in versions_of(chain):
        graphs: list[Any] = []
        for _ in range(2):
            (x,) = operands(chain, ROWS, COLUMNS, dtype, "cuda")
            x = x.requires_grad_()
            graphs.append((function(x), x, torch.randn_like(x)))
        yield Candidate(
            f"gelu_dropout_backward_{short(dtype)}{suffix}",
            f"{label}, backward, {short(dtype)}",
            _peers.backward_in_turn(graphs),
            (),
            3 * ROWS * COLUMNS * dtype.itemsize,
            short(dtype),
        )


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
        for suffix, label, function in versions_of(chain):
            yield Candidate(
                f"attention_score_{short(dtype)}{suffix}", f"{label}, {short(dtype)}",
                function, (q, k), moved, short(dtype), facts={"shape": list(shape)},
            )  # fmt: skip


def tens() -> Iterator[Candidate]:
    """Name ten chains that are fused as they come."""
    for name, count, function in TEN:
        chain = Chain(f"ten_{name}", fusion.fuse(function), function, count)
        given = operands(chain, SIDE, SIDE, torch.bfloat16, "cuda")
        moved = (count + 1) * given[0].nbytes
        for suffix, label, run in versions_of(chain):
            yield Candidate(
                f"{chain.name}{suffix}", label.replace("ten_", ""), run, given, moved,
                "bfloat16",
            )  # fmt: skip


def cupy_gelus() -> Iterator[Candidate]:
    """Name GELU written as CuPy's expressions, a kernel an operation, and ours."""
    import cupy

    x = torch.randn(CUPY, device="cuda")
    root = (2 / torch.pi) ** 0.5

    def expression(x: torch.Tensor) -> Any:
        a = cupy.asarray(x)
        return 0.5 * a * (1 + cupy.tanh(root * (a + 0.044715 * a**3)))

    shape = f"{CUPY[0]} x {CUPY[1]}"
    for name, label, run in (
        ("cupy_gelu", "`gelu`", lambda x: fusion.gelu(x, "tanh")),
        ("cupy_gelu_eager", "CuPy, an operation a kernel", expression),
        ("cupy_gelu_compile", "torch eager", lambda x: F.gelu(x, approximate="tanh")),
    ):
        yield Candidate(name, f"{label}, {shape} float32", run, (x,), 2 * x.nbytes)


if __name__ == "__main__":
    sys.exit(main())
