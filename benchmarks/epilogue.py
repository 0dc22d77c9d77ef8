"""Chapter 12 on a GPU: products with epilogues beside eager torch and torch.compile.

    python -m benchmarks.epilogue                 measure and store
    python -m benchmarks.epilogue --check         and hold against the floors
    python -m benchmarks.epilogue --only-correct  no timing; also without a GPU

FLOPs are those of the products alone. Memory is what the way there leaves for the way
back (``kept``), and the most that is allocated on both, weights and input aside.
``rest`` is what share of eager torch's time is not the product's. The chapter's own
kernels, the rungs, are timed in fp16, beside torch in fp16.
"""

from __future__ import annotations

import argparse
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
from solutions import epilogue
from solutions.epilogue.linear_gelu_fast import linear_gelu_fast
from solutions.epilogue.mlp_fused import mlp_fused

TOKENS, FEATURES, WIDE, HIDDEN = 8192, 4096, 16384, 11008
DTYPE = torch.bfloat16
ROUNDS, SECONDS = 5, 0.1
SOURCES = Path(epilogue.__file__).parent
CUPY = (1024, 512, 768)
"""Rows, inner and columns at which one source compares itself with CuPy."""
# Images, side, channels, out channels, stride; kernels of 3 x 3, a padding of 1.
IMAGES = (
    (8, 56, 256, 256, 1),
    (8, 28, 512, 512, 1),
    (32, 14, 512, 512, 1),
    (8, 112, 128, 128, 1),
    (8, 224, 64, 64, 1),
    (8, 56, 256, 512, 2),
)
NARROW = ((2**18, 64, 256), (2**18, 128, 512))
"""Rows, features and hidden numbers of an MLP in one kernel."""
NO_GELU = ("y = 0.5f * x * (1.0f + erff(0.70710678f * x));", "y = x;")

# Lowest ratio to the better peer that is no regression, by device.
FLOORS: dict[str, dict[str, float]] = {
    "nvidia-h200": {
        "linear_gelu": 1.03,
        "linear_gelu_tanh": 1.02,
        "mlp": 0.99,
        "gated_mlp": 0.98,
        "mlp_training": 0.93,
        "gated_mlp_training": 0.98,
        "conv_8x56x56_256_256_1": 1.09,
        "conv_8x28x28_512_512_1": 1.06,
        "conv_32x14x14_512_512_1": 1.06,
        "conv_8x112x112_128_128_1": 1.25,
        "conv_8x224x224_64_64_1": 0.93,
        "conv_8x56x56_256_512_2": 1.21,
    }
}

Function = Callable[..., Any]


class Layer(NamedTuple):
    """A layer by us and as torch writes it.

    Args:
        name: of the row.
        title: of the layer, as a table shows it.
        ours: takes the operands.
        theirs: likewise.
        given: the operands.
        flops: of the products, one way.
        alone: torch's product without what follows it.
    """

    name: str
    title: str
    ours: Function
    theirs: Function
    given: tuple[torch.Tensor, ...]
    flops: float
    alone: Function | None = None


def linear_gelu(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Multiply, then GELU, as torch writes it."""
    return F.gelu(F.linear(x, w, b))


def linear_gelu_tanh(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Likewise, with tanh's form."""
    return F.gelu(F.linear(x, w, b), approximate="tanh")


def mlp(x: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> torch.Tensor:
    """Compute two layers as torch writes them."""
    return F.linear(F.gelu(F.linear(x, w1, b1)), w2, b2)


def gated_mlp(x: Any, gate: Any, up: Any, down: Any) -> torch.Tensor:
    """Compute a gated layer as torch writes it."""
    return F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)


def main() -> int:
    """Check, measure, store; return 0 if all is right and above its floor."""
    options = _command.command_line(__doc__).parse_args()
    return _command.run("epilogue", options, check_values, measured, FLOORS, "of_peer")


def measured(options: argparse.Namespace) -> _command.Measured:
    """Time every layer, group by group: the operands of one are let go."""
    rows: list[Row] = []
    for group in groups():
        found = _peers.beside(list(group), ROUNDS, SECONDS)
        _peers.compare_with_torch(found)
        compare_with_products(found)
        rows += found
        yield rows, {"tokens": TOKENS}


def groups() -> Iterator[Iterator[Candidate]]:
    """Yield what is timed together."""
    yield from (there(layer) for layer in layers("cuda"))
    for layer in layers("cuda"):
        if layer.name in ("mlp", "gated_mlp"):
            yield there_and_back(layer)
    yield from (there(conv) for conv in convolutions("cuda"))
    for dtype in (torch.float32, torch.float16):
        yield beside_cupy(dtype)
    yield linear_rungs()
    yield from (mlp_rung(*sizes) for sizes in NARROW)
    yield conv_rung()


def compare_with_products(rows: Sequence[Row]) -> None:
    """Add how ours stands to the product alone, and what of eager is not the product.

    The product's row has its layer's name with ``_alone`` behind. All ratios are to
    eager torch.
    """
    ratios = {row["name"]: row["ratio"] for row in rows}
    for row in rows:
        name = row["name"]
        if f"{name}_alone" in ratios:
            row["of_alone"] = row["ratio"] / ratios[f"{name}_alone"]
        layer = name.removesuffix("_eager")
        if layer != name and f"{layer}_alone" in ratios:
            row["rest"] = 1 - 1 / ratios[f"{layer}_alone"]


def drawn(*shape: int, device: str, scale: float = 1.0) -> torch.Tensor:
    """Draw an operand."""
    dtype = DTYPE if device == "cuda" else torch.float32
    return (scale * torch.randn(shape, device=device)).to(dtype)


def layers(device: str) -> Iterator[Layer]:
    """Yield the layers; small ones without a GPU."""
    sizes = (TOKENS, FEATURES, WIDE, HIDDEN)
    tokens, features, wide, hidden = sizes if device == "cuda" else (9, 16, 24, 40)

    def of(*shape: int) -> torch.Tensor:
        return drawn(*shape, device=device, scale=shape[-1] ** -0.5)

    x = drawn(tokens, features, device=device)
    given = (x, of(wide, features), of(wide))
    flops = 2.0 * tokens * features * wide
    yield Layer(
        "linear_gelu",
        "linear+GELU",
        epilogue.linear_gelu,
        linear_gelu,
        given,
        flops,
        F.linear,
    )
    yield Layer(
        "linear_gelu_tanh",
        "linear+GELU by tanh",
        lambda x, w, b: epilogue.linear_gelu(x, w, b, "tanh"),
        linear_gelu_tanh,
        given,
        flops,
    )
    given = (*given, of(features, wide), of(features))
    yield Layer("mlp", "MLP", epilogue.mlp, mlp, given, 2 * flops)
    given = (x, of(hidden, features), of(hidden, features), of(features, hidden))
    flops = 6.0 * tokens * features * hidden
    yield Layer("gated_mlp", "gated MLP", epilogue.gated_mlp, gated_mlp, given, flops)


def convolutions(device: str) -> Iterator[Layer]:
    """Yield the convolutions; small ones without a GPU."""
    for images, side, inner, outer, stride in IMAGES:
        name = f"conv_{images}x{side}x{side}_{inner}_{outer}_{stride}"
        title = f"{images} x {side} x {side}, {inner} to {outer}"
        title += f", stride {stride}" * (stride > 1)
        if device == "cpu":
            images, side, inner, outer = 1, 6, 8, 8
        x = drawn(images, inner, side, side, device=device)
        w = drawn(outer, inner, 3, 3, device=device, scale=(9 * inner) ** -0.5)
        x, w = (t.contiguous(memory_format=torch.channels_last) for t in (x, w))

        def ours(x: Any, w: Any, b: Any, stride: int = stride) -> torch.Tensor:
            return epilogue.conv2d_bias_act(x, w, b, stride, 1, "relu")

        def theirs(x: Any, w: Any, b: Any, stride: int = stride) -> torch.Tensor:
            return F.relu(F.conv2d(x, w, b, stride, 1))

        def alone(x: Any, w: Any, b: Any, stride: int = stride) -> torch.Tensor:
            return F.conv2d(x, w, None, stride, 1)

        given = (x, w, drawn(outer, device=device))
        flops = 18.0 * images * (side // stride) ** 2 * inner * outer
        yield Layer(name, title, ours, theirs, given, flops, alone)


def check_values(device: str) -> None:
    """Hold each against torch in float64."""
    for layer in (*layers(device), *convolutions(device)):
        rows = 64 if layer.given[0].dim() == 2 else 1
        given = (layer.given[0][:rows], *layer.given[1:])
        if device == "cuda" and given[0].dim() == 2:
            given = tuple(t[:256] for t in (given[0],)) + given[1:]
        got = layer.ours(*given).double()
        right = layer.theirs(*(t.double() for t in given))
        error = float((got - right).abs().max() / right.abs().max())
        assert error < 8 * torch.finfo(given[0].dtype).eps, (layer.name, error)
        print(f"right on {device}: {layer.name}, off by {error:.1e} of the largest")
    check_rungs(device)


def check_rungs(device: str) -> None:
    """Hold the chapter's own kernels against torch in float64."""

    def of(*shape: int, scale: float = 1.0) -> torch.Tensor:
        return (scale * torch.randn(shape, device=device)).half()

    x, w, b = of(128, 64), of(256, 64, scale=0.1), of(256)
    w2, b2 = of(64, 256, scale=0.1), of(64)
    out = x.new_empty(128, 256)
    rung(SOURCES, "linear_gelu")[(2, 1), 128](x, w, b, out, 128, 256, 64)
    pixels, places = of(1, 8, 16, 32), of(64, 3, 3, 32, scale=0.1)
    convolved = torch.empty(1, 8, 16, 64, dtype=x.dtype, device=device)
    rung(SOURCES, "conv_bias_act")[(1, 1), 128](
        pixels, places, b2, convolved, 1, 8, 16, 32, 64, 3, 3, 1, 1
    )
    wide = [t.double() for t in (x, w, b, w2, b2)]
    exact = F.conv2d(
        pixels.double().permute(0, 3, 1, 2), places.double().permute(0, 3, 1, 2),
        wide[4], padding=1,
    )  # fmt: skip
    for name, got, right in (
        ("linear_gelu.cu", out, linear_gelu(*wide[:3])),
        ("linear_gelu_fast", linear_gelu_fast(x, w, b), linear_gelu(*wide[:3])),
        ("mlp_fused", mlp_fused(x, w, b, w2, b2), mlp(*wide)),
        ("conv_bias_act.cu", convolved, F.relu(exact).permute(0, 2, 3, 1)),
    ):
        error = float((got.double() - right).abs().max() / right.abs().max())
        assert error < 2 * torch.finfo(got.dtype).eps, (name, error)
        print(f"right on {device}: {name}, off by {error:.1e} of the largest")


def there(layer: Layer) -> Iterator[Candidate]:
    """Name a layer's way there, ours and the peers'."""
    every = {**_peers.torchs(layer.theirs), "": ("ours", layer.ours)}
    if layer.alone is not None:
        every["_alone"] = ("the product alone", layer.alone)
    if layer.name == "linear_gelu":
        every["_fast"] = ("linear_gelu_fast", linear_gelu_fast)
    return _peers.each(
        every, layer.name, f"{layer.title}, {{}}", layer.given, dtype="bfloat16",
        flops=layer.flops, peers=(f"{layer.name}_eager",),
    )  # fmt: skip


def there_and_back(layer: Layer) -> Iterator[Candidate]:
    """Name a layer's way there and back, with the memory that it takes."""
    given = tuple(t.detach().requires_grad_() for t in layer.given)
    slope = torch.randn_like(layer.theirs(*layer.given))
    again = partial(layer.ours, recompute=True)
    for suffix, (label, function) in {
        **_peers.torchs(layer.theirs),
        "": ("ours", layer.ours),
        "_again": ("ours, pre-activation again", again),
    }.items():
        run = _peers.there_and_back(function, given, slope)
        kept, peak = memory_of(function, given, slope, run)
        yield Candidate(
            f"{layer.name}_training{suffix}", f"{layer.title}, {label}",
            run, dtype="bfloat16", flops=3 * layer.flops,
            peers=(f"{layer.name}_training_eager",),
            facts={"kept_mb": kept, "peak_mb": peak},
        )  # fmt: skip


def beside_cupy(dtype: torch.dtype) -> Iterator[Candidate]:
    """Name linear+GELU as one source has it: against CuPy's expressions."""
    import cupy

    rows, inner, columns = CUPY
    sizes = ((rows, inner), (columns, inner), (columns,))
    x, w, b = (torch.randn(size, device="cuda").to(dtype) for size in sizes)
    root = (2 / torch.pi) ** 0.5

    def expression(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Any:
        a = cupy.asarray(x) @ cupy.asarray(w).T + cupy.asarray(b)
        return 0.5 * a * (1 + cupy.tanh(root * (a + 0.044715 * a**3)))

    name = "cupy_linear_gelu" + f"_{short(dtype)}" * (dtype != torch.float32)
    every = {
        "_eager": ("CuPy, an operation a kernel", expression),
        "_compile": ("torch eager", linear_gelu_tanh),
        "": ("ours", lambda x, w, b: epilogue.linear_gelu(x, w, b, "tanh")),
    }
    return _peers.each(
        every, name, f"linear_gelu, {short(dtype)}, {{}}", (x, w, b),
        dtype=short(dtype), flops=2.0 * rows * inner * columns,
        peers=(f"{name}_eager",),
    )  # fmt: skip


# --- the chapter's own kernels ------------------------------------------------------


def linear_rungs() -> Iterator[Candidate]:
    """Name the chapter's two linear layers, and the first without its GELU."""
    x, w, b = (t.half() for t in next(layers("cuda")).given)
    (m, k), n = x.shape, w.shape[0]
    out = x.new_empty(m, n)
    finished = rung(SOURCES, "linear_gelu")
    text = (SOURCES / "linear_gelu.cu").read_text()
    assert NO_GELU[0] in text, "linear_gelu.cu has another GELU"
    plain = kw.cuda.compile(text.replace(*NO_GELU), name="linear.cu")["linear_gelu"]
    given = (x, w, b, out, m, n, k)
    grid = (n // 128, m // 128)
    versions: tuple[tuple[str, str, Function, tuple[Any, ...]], ...] = (
        ("eager", "torch eager", linear_gelu, given[:3]),
        ("alone", "the product alone", F.linear, given[:3]),
        ("linear", "linear_gelu.cu without its GELU", plain[grid, 128], given),
        ("linear_gelu", "linear_gelu.cu", finished[grid, 128], given),
        ("fast", "linear_gelu_fast", linear_gelu_fast, given[:3]),
    )
    for name, label, function, arguments in versions:
        yield Candidate(
            f"rung_{name}", f"{label}, float16", function, arguments,
            dtype="float16", flops=2.0 * m * n * k, peers=("rung_eager",),
        )  # fmt: skip


def mlp_rung(rows: int, d: int, hidden: int) -> Iterator[Candidate]:
    """Name the MLP in one kernel, and torch's."""
    sizes = ((rows, d), (hidden, d), (hidden,), (d, hidden), (d,))
    given = tuple(
        (torch.randn(size, device="cuda") * (size[-1] ** -0.5 if at else 1)).half()
        for at, size in enumerate(sizes)
    )
    every = {**_peers.torchs(mlp), "": ("one kernel", mlp_fused)}
    return _peers.each(
        every, f"rung_mlp_{d}", f"{{}}, {d} to {hidden} to {d}", given,
        dtype="float16", flops=4.0 * rows * d * hidden, peers=(f"rung_mlp_{d}_eager",),
    )  # fmt: skip


def conv_rung() -> Iterator[Candidate]:
    """Name the chapter's convolution, and torch's, in fp16."""
    layer = next(convolutions("cuda"))
    x, w, b = (t.half() for t in layer.given)
    images, channels, height, width = x.shape
    pixels, places = (t.permute(0, 2, 3, 1) for t in (x, w))  # as they lie in memory
    out = torch.empty_like(pixels)
    shape = (images, height, width, channels, w.shape[0], 3, 3, 1, 1)
    grid = (w.shape[0] // 64, images * height * width // 128)
    ours = rung(SOURCES, "conv_bias_act")[grid, 128]
    assert layer.alone is not None
    theirs = {
        **_peers.torchs(layer.theirs),
        "_alone": ("the convolution alone", layer.alone),
    }
    for every, arguments in (
        (theirs, (x, w, b)),
        ({"": ("conv_bias_act.cu", ours)}, (pixels, places, b, out, *shape)),
    ):
        yield from _peers.each(
            every, "rung_conv", "{}, float16", arguments,
            dtype="float16", flops=layer.flops, peers=("rung_conv_eager",),
        )  # fmt: skip


def memory_of(
    function: Function, given: tuple[torch.Tensor, ...], slope: torch.Tensor,
    run: Function,
) -> tuple[float, float]:  # fmt: skip
    """Return the MB kept between there and back, and the most of both."""
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    out = function(*given)
    kept = torch.cuda.memory_allocated() - before
    found = torch.autograd.grad(out, given, slope)
    peak = torch.cuda.max_memory_allocated() - before
    del out, found
    return kept / 1e6, peak / 1e6


if __name__ == "__main__":
    sys.exit(main())
