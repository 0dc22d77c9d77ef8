"""What the exercises of chapter 5 share: rows, their statistics, and the tolerance.

The tolerance of a normalised row of N numbers. Added up one after another, the sum
carries a rounding error of up to eps/2 of each partial sum; these errors have random
signs, and together make eps * sqrt(N) * rms(x) in the mean, give or take. Divided by
the deviation that is the error of each output. The sum of squares is off by
eps * sqrt(N) of itself, which moves the output by half as much. So

    |error| <= 2 * eps * sqrt(N) * (|weight| * (rms(x) * rstd + |h|) + |bias|)

with h the normalised x. Any order of the sums keeps it, and 16-bit sums do not.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from autograder.drawing import rounded, tensor
from autograder.exercise import Arguments, Case, Launch, Outputs, Speed, Tolerance

EPS = 1e-5
WARP, THREADS = 32, 256

_REGIMES = {
    "distinct": "every row with a mean and a deviation of its own",
    "offset": "mean 100, deviation 1",
    "small": "deviation 0.003, eps 2e-5",
    "nan": "a NaN in one row",
    "far": "mean 10,000, deviation 0.01",
    "large": "values near 1,000",
}


def rows_case(
    rows: int,
    columns: int,
    regime: str = "distinct",
    dtype: torch.dtype = torch.float32,
) -> Case:
    """Return a case of one shape, named as the learner reads it."""
    name = f"{rows:,} x {columns:,}, {_REGIMES[regime]}"
    return Case(name, {"rows": rows, "columns": columns}, regime, dtype)


def draw_rows(case: Case, generator: torch.Generator) -> torch.Tensor:
    """Draw a matrix in the case's regime; no two elements of a row are alike."""
    rows, columns = case.sizes["rows"], case.sizes["columns"]

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    x = normal(rows, columns)
    if case.regime == "offset":
        x += 100.0
    elif case.regime == "small":
        x *= 0.003
    elif case.regime == "far":
        x = 10_000.0 + 0.01 * x
    elif case.regime == "large":
        x = 1_000.0 + 50.0 * x
    else:
        x = (0.5 + normal(rows, 1).abs()) * x + 2.0 * normal(rows, 1)
    if case.regime == "nan":
        x[rows // 2, columns // 3] = torch.nan
    return x


def draw_affine(
    case: Case, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw a weight around 1 and a bias around 0."""
    columns = case.sizes["columns"]
    weight = 1.0 + 0.3 * torch.randn(columns, generator=generator)
    return weight, torch.randn(columns, generator=generator)


def eps_of(case: Case) -> float:
    """Return what is added to the variance: not everywhere the same, where it counts.

    So that 1e-5 in the kernel's text in place of its argument does not pass.
    """
    return 2.0 * EPS if case.regime == "small" else EPS


def warps_launch(rows: int, threads: int = 128) -> Launch:
    """Return a launch of a warp a row."""
    return Launch((max(1, -(-rows * WARP // threads)),), (threads,))


@dataclass(frozen=True)
class Parts:
    """A matrix's rows in float64, normalised.

    Args:
        x: the matrix.
        mean, variance: of each row, (rows, 1).
        eps: added to the variance.
    """

    x: torch.Tensor
    mean: torch.Tensor
    variance: torch.Tensor
    eps: float

    @property
    def rstd(self) -> torch.Tensor:
        """One over the deviation, as layer norm takes it."""
        return (self.variance + self.eps).rsqrt()

    @property
    def h(self) -> torch.Tensor:
        """The normalised rows."""
        return (self.x - self.mean) * self.rstd

    @property
    def rms(self) -> torch.Tensor:
        """The root of the mean square of each row."""
        return (self.x * self.x).mean(1, keepdim=True).sqrt()


def parts(arguments: Arguments) -> Parts:
    """Return the parts of a layer norm of ``x``."""
    x = tensor(arguments, "x").double()
    mean = x.mean(1, keepdim=True)
    variance = ((x - mean) ** 2).mean(1, keepdim=True)
    return Parts(x, mean, variance, rounded(arguments, "eps"))


def affine(h: torch.Tensor, arguments: Arguments) -> torch.Tensor:
    """Scale and shift the columns, where the arguments hold weight and bias."""
    if "weight" in arguments:
        h = h * tensor(arguments, "weight").double()
    if "bias" in arguments:
        h = h + tensor(arguments, "bias").double()
    return h


def norm_scale(arguments: Arguments) -> Outputs:
    """Return the magnitude that rounding is relative to."""
    p = parts(arguments)
    by = {name: value for name, value in arguments.items() if name != "bias"}
    scale = affine(p.rms * p.rstd + p.h.abs(), by).abs()
    if "bias" in arguments:
        scale = scale + tensor(arguments, "bias").double().abs()
    # A row with a NaN has none. Its outputs are NaN, and nothing is compared but with
    # a mistake that lets the NaN fall: then weights, which are near 1, are at hand.
    return {"out": scale.nan_to_num(1.0)}


NORM_TOLERANCE = Tolerance(
    factor=2.0, length=lambda case: case.sizes["columns"], scale=norm_scale
)


def norm(arguments: Arguments) -> Outputs:
    """Return the layer norm of ``x``."""
    return {"out": affine(parts(arguments).h, arguments)}


def timed(rows: int, columns: int, itemsize: int, bands: dict[str, float]) -> Speed:
    """Return the speed gate of a kernel that reads a matrix once and writes one."""
    dtype = torch.float16 if itemsize == 2 else torch.float32
    return Speed(
        peer="copy bandwidth",
        case=rows_case(rows, columns, "distinct", dtype),
        bytes_moved=lambda case: (
            2 * itemsize * case.sizes["rows"] * case.sizes["columns"]
        ),
        bands=bands,
    )
