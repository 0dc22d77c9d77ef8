"""Chapter 5 on a GPU: every kernel right, then timed beside eager and torch.compile.

    python -m benchmarks.layernorm                 measure and store
    python -m benchmarks.layernorm --check         and hold against the floors
    python -m benchmarks.layernorm --only-correct  no timing; also without a GPU

Each candidate is compared with a copy of as many bytes in its own round, and ours with
torch's own (``_peers``). ``of_goal`` is the ratio over what the course asks: forward
the better peer or 0.95 of a copy, backward 1.3 times the better peer or 0.85 of a copy,
whichever is lower. A backward's bytes are x and dy read and dx written.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

import kernelwright as kw
from benchmarks import _command, _peers
from benchmarks._candidates import Candidate, Row, short
from benchmarks._sources import detective_kernel, rung
from solutions import layernorm as family

SHAPES = ((16384, 8192), (32768, 1024))
RUNG_ROWS, RUNG_COLUMNS = 65536, 1024
DTYPES = (torch.bfloat16, torch.float32)
ROUNDS = 5
EPS = 1e-5
BLOCKS = 1056  # of the chapter's backward kernel: eight an SM of an H200
SOURCES = Path(family.__file__).parent
VALUE_SHAPES = (
    (5,),
    (3, 7, 33),
    (40, 1024),
    (9, 1001),
    (6, 8192),
    (3, 12_000),
    (2, 40_001),
    (0, 5),
    (3, 0),
)
# Lowest share of the goal that is no regression, by device.
FLOORS: dict[str, dict[str, float]] = {
    "nvidia-h200": {
        f"{kind}_{way}{name}_{rows}x{columns}": 1.0
        for kind in ("layer_norm", "rms_norm", "layer_norm_relu")
        for way in ("", "backward_")
        for name in ("bfloat16", "float32")
        for rows, columns in SHAPES
    }
}

Function = Callable[..., torch.Tensor]


def _relu(*arguments: Any) -> torch.Tensor:
    return torch.relu(F.layer_norm(*arguments))


# Ours, torch's, and whether there is a bias.
KINDS: dict[str, tuple[Function, Function, bool]] = {
    "layer_norm": (family.layer_norm, F.layer_norm, True),
    "rms_norm": (family.rms_norm, F.rms_norm, False),
    "layer_norm_relu": (family.layer_norm_relu, _relu, True),
}


def main() -> int:
    """Check, measure, store; return 0 if all is right and above its floor."""
    options = _command.command_line(__doc__).parse_args()
    return _command.run("layernorm", options, check_values, measured, FLOORS, "of_goal")


def measured(options: argparse.Namespace) -> _command.Measured:
    """Time every candidate; measure what is left of rows far from zero."""
    rows = _peers.beside(list(candidates()), ROUNDS)
    _peers.compare_with_torch(rows)
    hold_against_goal(rows)
    yield rows, {"copy_gbps": round(_peers.copy_gbps(rows), 1), **far_from_zero()}


# --- right first ------------------------------------------------------------------


def check_values(device: str) -> None:
    """Hold values and gradients against float64, over kinds, dtypes and shapes."""
    worst = 0.0
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        for shape in VALUE_SHAPES:
            for kind in KINDS:
                worst = max(worst, worst_error(kind, shape, dtype, device))
    assert worst < 4, worst
    print(f"right on {device}: off by {worst:.1f} eps of the largest value at most")


def worst_error(
    kind: str, shape: tuple[int, ...], dtype: torch.dtype, device: str
) -> float:
    """Return the largest error of output and gradients, in eps of the largest value."""
    ours, theirs, has_bias = KINDS[kind]
    row = shape[-1:]
    generator = torch.Generator().manual_seed(sum(shape))
    inputs = [2 * torch.randn(shape, generator=generator) + 1]
    inputs += [0.5 + torch.rand(row, generator=generator)]
    inputs += [torch.randn(row, generator=generator)] * has_bias
    dy = torch.randn(shape, generator=generator).to(device, dtype)
    given = [t.to(device, dtype).requires_grad_() for t in inputs]
    exact = [t.detach().double().requires_grad_() for t in given]
    got = ours(given[0], row, *given[1:], EPS)
    want = theirs(exact[0], row, *exact[1:], EPS)
    assert got.dtype == dtype and got.shape == shape and got.device == dy.device
    pairs = [(got, want)]
    pairs += zip(
        torch.autograd.grad(got, given, dy),
        torch.autograd.grad(want, exact, dy.double()),
        strict=True,
    )
    tiny = torch.finfo(torch.float64).tiny  # where all is 0, as it should be
    errors = [
        float((a.double() - b).abs().max() / b.abs().max().clamp(min=tiny))
        for a, b in ((a.detach(), b.detach()) for a, b in pairs)
        if a.numel()
    ]
    return max(errors, default=0.0) / torch.finfo(dtype).eps


def far_from_zero() -> dict[str, float]:
    """Return the worst errors of rows with mean 10,000 and deviation 0.01.

    And the share of rows that come out as NaN of the one-pass kernel.
    """
    x = 10_000 + 0.01 * torch.randn(1024, 1024, device="cuda")
    exact = F.layer_norm(x.double(), (1024,))
    found = {
        "far_ours": family.layer_norm(x, 1024),
        "far_torch": F.layer_norm(x, (1024,)),
    }
    found["far_compiled"] = _peers.compiled(F.layer_norm)(x, (1024,))
    found["far_one_pass"] = far_kernel(False, x)
    found["far_mended"] = far_kernel(True, x)
    off = {name: (y.double() - exact).abs() for name, y in found.items()}
    worst = {name: float(error.nan_to_num(0.0).max()) for name, error in off.items()}
    lost = float(off["far_one_pass"].isnan().any(1).double().mean())
    return {**worst, "far_one_pass_nan_rows": lost}


def far_kernel(solved: bool, x: torch.Tensor) -> torch.Tensor:
    """Run the detective's kernel as it is given to the learner, or mended."""
    kernel = detective_kernel("layernorm", "variance_cancels", solved=solved)
    out = torch.empty_like(x)
    rows, columns = x.shape
    kernel[kw.cdiv(rows, 4), 128](x, out, rows, columns, EPS)
    return out


# --- then fast --------------------------------------------------------------------


def candidates() -> Iterator[Candidate]:
    """Name everything whose figures are stored; the copies first."""
    for shape, dtype in itertools.product(SHAPES, DTYPES):
        x = torch.randn(shape, device="cuda").to(dtype)
        yield _peers.copy_of(x, f"copy_{2 * x.nbytes}")
    yield from rungs()
    for kind, (rows, columns), dtype in itertools.product(KINDS, SHAPES, DTYPES):
        yield from forwards(kind, rows, columns, dtype)
        yield from backwards(kind, rows, columns, dtype)
    yield from claims()


def parameters(kind: str, columns: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """Return a weight, and a bias where the kind has one."""
    made = [1 + 0.1 * torch.randn(columns, device="cuda")]
    if KINDS[kind][2]:
        made.append(torch.randn(columns, device="cuda"))
    return [t.to(dtype) for t in made]


def versions(kind: str) -> _peers.Versions:
    """Name ours and torch's versions of a kind, of x and the parameters."""
    ours, theirs, _ = KINDS[kind]

    def on_rows(function: Function) -> Function:
        return lambda x, *given: function(x, x.shape[-1:], *given, EPS)

    every = {"": (f"`{kind}`", ours), **_peers.torchs(theirs, f", {kind}")}
    return {suffix: (label, on_rows(run)) for suffix, (label, run) in every.items()}


def forwards(
    kind: str, rows: int, columns: int, dtype: torch.dtype
) -> Iterator[Candidate]:
    """Name the forward pass of a kind, ours and the peers'."""
    x = torch.randn(rows, columns, device="cuda").to(dtype)
    given = parameters(kind, columns, dtype)

    def run(function: Function, x: torch.Tensor) -> None:
        with torch.no_grad():
            function(x, *given)

    every = {s: (label, partial(run, f)) for s, (label, f) in versions(kind).items()}
    return _peers.each(
        every, f"{kind}_{short(dtype)}_{rows}x{columns}",
        f"{{}}, {rows} x {columns} {short(dtype)}", (x,), 2 * x.nbytes, short(dtype),
    )  # fmt: skip


def backwards(
    kind: str, rows: int, columns: int, dtype: torch.dtype
) -> Iterator[Candidate]:
    """Name the backward pass, through autograd for all of them."""

    def drawn() -> _peers.Graph:
        x, dy = (torch.randn(rows, columns, device="cuda").to(dtype) for _ in range(2))
        given = (x, *parameters(kind, columns, dtype))
        return tuple(t.requires_grad_() for t in given), dy

    return _peers.each(
        _peers.backwards(versions(kind), drawn),
        f"{kind}_backward_{short(dtype)}_{rows}x{columns}",
        f"{{}}, backward, {rows} x {columns} {short(dtype)}", (),
        3 * rows * columns * dtype.itemsize, short(dtype),
    )  # fmt: skip


def rung_launches(rows: int, columns: int) -> dict[str, tuple[Callable[..., Any], Any]]:
    """Return each rung's launch and arguments, for a matrix of floats or halves."""
    x = torch.randn(rows, columns, device="cuda")
    w, b = parameters("layer_norm", columns, torch.float32)
    out = torch.empty_like(x)
    plain = (x, w, b, out, columns, EPS)
    found: dict[str, tuple[Callable[..., Any], Any]] = {
        "two_pass": (rung(SOURCES, "two_pass", "two_pass")[rows, 256], plain),
        "welford": (rung(SOURCES, "welford", "welford")[rows, 256], plain),
        "vectorized": (
            rung(SOURCES, "vectorized", "layer_norm_relu")[rows, 256],
            plain,
        ),
    }
    if columns <= 1024:
        warps = rung(SOURCES, "warp_row", "layer_norm")[rows // 4, 128]
        found["warp_row"] = (warps, (x, w, b, out, rows, columns, EPS))
        mean, rstd = x.mean(1), (x.var(1, correction=0) + EPS).rsqrt()
        sums = [x.new_empty(BLOCKS, columns) for _ in range(2)]
        back = rung(SOURCES, "partials", "layer_norm_backward")[BLOCKS, 256]
        given = (x, x.clone(), w, mean, rstd, out, *sums, rows, columns)
        found["partials"] = (back, given)
    if columns <= 2048:
        halves = rung(SOURCES, "rms", "rms_norm")[rows // 4, 128]
        h = x.half()
        found["rms"] = (halves, (h, w.half(), torch.empty_like(h), rows, columns, EPS))
    return found


_RUNG_LABELS = {
    "two_pass": "two sweeps and one to write",
    "welford": "Welford: one sweep and one to write",
    "warp_row": "a warp a row, in registers",
    "vectorized": "a block a row, 16 bytes, with the ReLU",
    "rms": "RMSNorm of halves, a warp a row",
    "partials": "backward with partial sums",
}


def rungs() -> Iterator[Candidate]:
    """Name the chapter's own kernels."""
    for rows, columns in ((RUNG_ROWS, RUNG_COLUMNS), SHAPES[0]):
        launches = rung_launches(rows, columns)
        for name, (launch, arguments) in launches.items():
            x = arguments[0]
            moved = (3 if name == "partials" else 2) * x.nbytes
            tail = "" if columns == RUNG_COLUMNS else f"_{columns}"
            yield Candidate(
                f"rung_{name}{tail}",
                f"{_RUNG_LABELS[name]}, {rows} x {columns}",
                launch,
                arguments,
                moved,
                short(x.dtype),
            )


def _formula(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Write layer norm out, an operation a kernel: the *standard* of old papers."""
    mean = x.mean(-1, keepdim=True)
    variance = x.var(-1, keepdim=True, correction=0)
    return (x - mean) / torch.sqrt(variance + EPS) * weight + bias


def claims() -> Iterator[Candidate]:
    """Name layer norm written out in torch operations, one kernel each."""
    for rows, columns in SHAPES:
        x = torch.randn(rows, columns, device="cuda")
        given = parameters("layer_norm", columns, torch.float32)
        yield Candidate(
            f"layer_norm_float32_{rows}x{columns}_formula",
            f"torch eager, the formula written out, {rows} x {columns} float32",
            _formula,
            (x, *given),
            2 * x.nbytes,
        )


def hold_against_goal(rows: list[Row]) -> None:
    """Add to each of our rows how it stands to what the course asks."""
    by_name = {row["name"]: row for row in rows}
    for name, row in by_name.items():
        if "of_peer" not in row:
            continue
        peers = [by_name[f"{name}_{peer}"] for peer in ("eager", "compile")]
        best = min(peers, key=lambda peer: peer["median_ms"])["ratio"]
        backward = "_backward_" in name
        goal = min(1.3 * best, 0.85) if backward else min(best, 0.95)
        row["of_goal"] = row["ratio"] / goal
        print(f"{name:<48} {row['of_goal']:5.2f} of goal")


if __name__ == "__main__":
    sys.exit(main())
