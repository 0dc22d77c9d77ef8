"""What a release of chapter 11 leaves out: hidden cases, drawn from the secret seed."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from autograder.drawing import drawn
from autograder.exercise import Case
from autograder.exercises.fusion.add_relu import halves_case
from autograder.exercises.fusion.attention_score import score_case
from autograder.exercises.fusion.bias_gelu import table_case
from autograder.exercises.fusion.chains import chain_case
from autograder.exercises.fusion.gelu_dropout import dropout_case
from autograder.exercises.fusion.layer_norm_relu_fused import norm_case
from autograder.exercises.fusion.mul_tanh import HALF, product_case
from autograder.exercises.fusion.shared import length_case


def _lengths(generator: torch.Generator) -> Iterator[Case]:
    for regime in ("distinct", "wide", "special"):
        yield length_case(drawn(generator, 2, 64), regime)
        yield length_case(drawn(generator, 257, 2000), regime)


def _halves(generator: torch.Generator) -> Iterator[Case]:
    for regime in ("distinct", "large", "special"):
        yield halves_case(drawn(generator, 2, 64), regime)
        # One to seven elements behind the last pack of several blocks.
        yield halves_case(8 * drawn(generator, 256, 600) + drawn(generator, 1, 8))


def _products(generator: torch.Generator) -> Iterator[Case]:
    yield product_case(drawn(generator, 1025, 5000))
    yield product_case(drawn(generator, 200, 900), "steep", HALF)
    yield product_case(drawn(generator, 2, 3000), "far")
    yield product_case(drawn(generator, 2, 3000), "summed")


def _tables(generator: torch.Generator) -> Iterator[Case]:
    for regime in ("distinct", "wide", "special"):
        yield table_case(drawn(generator, 2, 16), 4 * drawn(generator, 2, 64), regime)
        yield table_case(drawn(generator, 17, 60), 4 * drawn(generator, 257, 400))


def _dropouts(generator: torch.Generator) -> Iterator[Case]:
    yield dropout_case(4 * drawn(generator, 257, 800), 100 // drawn(generator, 2, 9))
    yield dropout_case(4 * drawn(generator, 1, 16) + 3, 30)
    yield dropout_case(4 * drawn(generator, 257, 800) + 1, 50, "wide")
    yield dropout_case(4 * drawn(generator, 257, 800) + 2, 25, "met")


def _norms(generator: torch.Generator) -> Iterator[Case]:
    # First: of the launches the first dozen are compiled for a GPU too.
    yield norm_case(drawn(generator, 3, 6), drawn(generator, 4000, 8192))
    yield norm_case(drawn(generator, 3, 6), drawn(generator, 2, 32), "small")
    yield norm_case(drawn(generator, 3, 6), drawn(generator, 33, 500), "offset")
    yield norm_case(drawn(generator, 3, 6), drawn(generator, 33, 900), dtype=HALF)
    yield norm_case(drawn(generator, 3, 6), drawn(generator, 257, 900), "nan")
    yield norm_case(1, 1)


def _scores(generator: torch.Generator) -> Iterator[Case]:
    for d, regime in ((64, "distinct"), (16, "growing"), (32, "far"), (16, "falling")):
        size = drawn(generator, 2, 150), drawn(generator, 66, 400)
        yield score_case(*size, d, regime)
    yield score_case(drawn(generator, 65, 150), drawn(generator, 2, 60), 128)
    yield score_case(drawn(generator, 2, 60), drawn(generator, 2, 150), 32, "below")
    yield score_case(drawn(generator, 2, 60), drawn(generator, 2, 60), 32, "deep")
    yield score_case(1, 1, 16)


_CHAINS = (
    "lambda x, y: (x * y).tanh() - (x * y).tanh() * y.exp() / (1 + x.sigmoid())",
    "lambda x: x * (1 + (x.exp() + 1).log().tanh()) / 2",
    "lambda x, y, z: (y - x).relu() + (x * x + y * y + z * z + 1).sqrt()",
    "lambda x, y: repeat(lambda h: {a} - h * y / (h * h + 1), 2, x)",
    "lambda x, y: -((x - {a}) * (y + {a}).erf()).sigmoid() / (y * y + {a})",
    "lambda x, y, z: (z > y) * (x - z) * {a} - (x > 0) / (z.exp() + {a})",
    "lambda x, y: (x * -{a}e-7 - 3e-8) * 2e7 - y / -{a}",
)


def _some_chains(generator: torch.Generator) -> Iterator[Case]:
    for chain in _CHAINS:
        # A number that no table of answers has.
        a = drawn(generator, 1001, 1999) / 1000
        yield chain_case(drawn(generator, 2, 3000), chain.replace("{a}", str(a)))


HIDDEN = {
    "gelu": {"hidden": _lengths},
    "add_relu": {"hidden": _halves},
    "mul_tanh": {"hidden": _products},
    "bias_gelu": {"hidden": _tables},
    "gelu_dropout": {"hidden": _dropouts},
    "dropout_replay": {"hidden": _dropouts},
    "layer_norm_relu_fused": {"hidden": _norms},
    "attention_score": {"hidden": _scores},
    "fuser": {"hidden": _some_chains},
}
