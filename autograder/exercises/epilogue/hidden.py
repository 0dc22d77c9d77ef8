"""What a release of chapter 12 leaves out: hidden cases, drawn from the secret seed."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from autograder.drawing import drawn
from autograder.exercise import Case
from autograder.exercises.epilogue.conv_bias_act import conv_case
from autograder.exercises.epilogue.mlp_fused import mlp_case
from autograder.exercises.epilogue.shared import linear_case
from autograder.exercises.epilogue.wrong_halo import halo_case


def _tiles(generator: torch.Generator) -> Iterator[Case]:
    yield linear_case(128, 256, 64 * drawn(generator, 1, 4))
    yield linear_case(256, 128, 64, "cold")
    yield linear_case(128, 128, 64 * drawn(generator, 1, 3), "special")


def _layers(generator: torch.Generator) -> Iterator[Case]:
    yield mlp_case(drawn(generator, 65, 150), 128, drawn(generator, 130, 190))
    yield mlp_case(drawn(generator, 2, 63), drawn(generator, 17, 60), 64, "cold")
    yield mlp_case(drawn(generator, 2, 63), 16, drawn(generator, 2, 60), "offset")


def _images(generator: torch.Generator) -> Iterator[Case]:
    for stride, padding in ((1, 1), (2, 0), (2, 2)):
        image = 2, drawn(generator, 5, 10), drawn(generator, 5, 10)
        taps = drawn(generator, 1, 5), drawn(generator, 1, 5)
        yield conv_case(image, (16 * drawn(generator, 1, 4), 24), taps, stride, padding)
    yield conv_case((1, 12, 12), (16, 136))


def _rims(generator: torch.Generator) -> Iterator[Case]:
    for images, channels in ((1, 1), (2, 3), (3, 8)):
        size = drawn(generator, 2, 12), drawn(generator, 2, 12)
        yield halo_case(images, *size, channels)
    yield halo_case(2, drawn(generator, 2, 9), 1, 3)


def _sizes(generator: torch.Generator) -> Iterator[Case]:
    m, n, k = (drawn(generator, 129, 200) for _ in range(3))
    yield linear_case(m, n, k)
    yield linear_case(drawn(generator, 2, 99), drawn(generator, 2, 99), 77, "cold")
    yield linear_case(drawn(generator, 1030, 1200), 20, 30)


HIDDEN = {
    "linear_gelu": {"hidden": _tiles},
    "mlp_fused": {"hidden": _layers},
    "conv_bias_act": {"hidden": _images},
    "wrong_halo": {"hidden": _rims},
    "linear_gelu_fast": {"hidden": _sizes},
}
