"""A convolution as a product whose left factor is never built, with bias and ReLU."""

from __future__ import annotations

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Count,
    Exercise,
    Launch,
    Output,
    Outputs,
    Problem,
    Tolerance,
)
from autograder.exercises.epilogue.shared import (
    EPS32,
    HALF,
    IN_REGISTERS,
    draw_layer,
    magnitudes,
    scaled,
)
from autograder.ideals import needed

PIXELS, CHANNELS = 128, 64  # of a block's tile
_REGIMES = {
    "distinct": "normal values",
    "offset": "biases far larger than the products",
    "special": "NaN and Inf among them",
}


def conv_case(
    image: tuple[int, int, int],
    channels: tuple[int, int],
    filter: tuple[int, int] = (3, 3),
    stride: int = 1,
    padding: int = 1,
    regime: str = "distinct",
) -> Case:
    """Return a case of one shape, named as the learner reads it.

    Args:
        image: how many, their height and width.
        channels: of x and of the result.
        filter: its rows and columns.
        stride: from one result's place to the next one's.
        padding: zeros on each side.
        regime: how values are drawn.
    """
    (batch, height, width), (r, s) = image, filter
    name = (
        f"{batch} x {height} x {width} x {channels[0]}, {channels[1]} filters of "
        f"{r} x {s}, stride {stride}, padding {padding}, {_REGIMES[regime]}"
    )
    sizes = {"batch": batch, "height": height, "width": width, "channels": channels[0]}
    sizes |= {"out_channels": channels[1], "r": r, "s": s}
    return Case(name, {**sizes, "stride": stride, "padding": padding}, regime, HALF)


def _problem(case: Case, generator: torch.Generator) -> Problem:
    of = case.sizes
    pixels = of["batch"] * of["height"] * of["width"]
    per_filter = of["r"] * of["s"] * of["channels"]
    x, _, _ = draw_layer(pixels, of["channels"], 0, case, generator)
    regime = "distinct" if case.regime == "special" else case.regime
    plain = Case(case.name, of, regime, case.dtype)
    _, weight, bias = draw_layer(0, per_filter, of["out_channels"], plain, generator)
    down, across = (
        (of[side] + 2 * of["padding"] - of[taps]) // of["stride"] + 1
        for side, taps in (("height", "r"), ("width", "s"))
    )
    out = of["batch"], down, across, of["out_channels"]
    grid = -(-out[3] // CHANNELS), -(-(out[0] * down * across) // PIXELS)
    return Problem(
        {
            "x": x.view(of["batch"], of["height"], of["width"], of["channels"]),
            "weight": weight.view(out[3], of["r"], of["s"], of["channels"]),
            "bias": bias,
            "out": None,
            **of,
        },
        {"out": Output(out, case.dtype)},
        Launch(grid, (128,)),
    )


def _convolved(
    arguments: Arguments, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    stride, padding = (int(arguments[n]) for n in ("stride", "padding"))
    sums = torch.nn.functional.conv2d(
        x.permute(0, 3, 1, 2), weight.permute(0, 3, 1, 2), bias, stride, padding
    )
    return sums.permute(0, 2, 3, 1).contiguous()


def _given(arguments: Arguments) -> list[torch.Tensor]:
    return [tensor(arguments, name) for name in ("x", "weight", "bias")]


def _reference(arguments: Arguments) -> Outputs:
    sums = _convolved(arguments, *(t.double() for t in _given(arguments)))
    return {"out": torch.relu(sums)}


def _scale(arguments: Arguments) -> Outputs:
    given = _given(arguments)
    sums = _convolved(arguments, *magnitudes(*given))
    terms = given[1][0].numel()
    rounding = EPS32 * (terms**0.5 + 1) * sums
    return scaled(_reference(arguments)["out"], rounding, given[0].dtype)


CONV_BIAS_ACT = Exercise(
    id="conv_bias_act",
    title="A convolution as a product",
    kind="core",
    points=25,
    language="cuda",
    entry="kernel",
    name="conv_bias_act",
    source="solutions/epilogue/conv_bias_act.cu",
    goal="Convolve images on the tensor cores without building the im2col matrix, and "
    "finish with bias and ReLU in registers.",
    requirements=(
        "All is stored with channels last: x (batch, height, width, channels), weight "
        "(out_channels, r, s, channels), out (batch, out_height, out_width, "
        "out_channels).",
        "channels are a multiple of 16 and out_channels of 8; any filter, stride and "
        "padding. The last tile may reach past the last pixel, channel or k.",
        "`source` returns nullptr in the padding, and outside of the matrix, from row "
        "pixels() and column k() on: there zeros are brought, and nothing is read.",
        "Bias and ReLU in fp32, rounded once; NaN stays NaN, as in torch.relu. Each "
        "element is stored once, in pairs. The sums stay in registers.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(
        conv_case((2, 8, 16), (32, 64)),
        conv_case((2, 7, 9), (16, 72)),
        conv_case((2, 9, 7), (16, 8), (3, 3), 2),
        conv_case((1, 6, 10), (48, 16), (3, 5), 1, 2),
        conv_case((1, 11, 5), (64, 8), (1, 1), 1, 0),
        conv_case((3, 5, 6), (16, 8), (2, 2), 3, 0, "offset"),
        conv_case((1, 1, 1), (16, 8)),
        conv_case((1, 8, 9), (16, 16), regime="special"),
    ),
    tolerance=Tolerance(factor=1.0, scale=_scale),
    hints=(
        "Two questions, one after the other. Which image, row and column of the result "
        "is `pixel`? And which row and column of the filter, and which channel, is k? "
        "Division and remainder answer both.",
        "Row of x: the result's row * stride - padding + the filter's row; columns "
        "likewise. Test each against its own side of the image, before they become "
        "one index. channels are a multiple of 16, so eight elements share a place of "
        "the filter.",
        "place = k / channels, channel = k % channels; row = down * stride - padding + "
        "place / s, column = across * stride - padding + place % s; x + ((image * "
        "height + row) * width + column) * channels + channel. The epilogue is "
        "linear_gelu's with guards: c < out_channels, p < of.pixels(); a warp has 64 "
        "pixels and 32 channels.",
    ),
    onward="`source` divides four times for every eight halves. Which of these "
    "divisions give the same in every round of the loop over i?",
    counts=(
        # Two blocks. Nine places of a filter; where they lie in the padding nothing is
        # read. Each warp may read its biases anew for each piece.
        Count("bytes", "global", "load", passes={"x": 9, "weight": 2, "bias": 256}),
        Count("bytes", "global", "store"),
        Count("requests", "global", "store", width=4, times=1.9),
        Count("writers", "global", "store", ideal=1, times=1),
        # 8 x 8 parts of out, 18 steps and 2 of zeros.
        needed("matrix products", 8 * 8 * 18),
    ),
    structure=IN_REGISTERS,
    shares={"correct": 0.6, "counts": 0.4, "speed": 0.0},
)
