"""Hidden cases of chapter 13."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from autograder.drawing import drawn
from autograder.exercise import Case
from autograder.exercises.int4.codes import codes_case
from autograder.exercises.int4.groups import RANGES, groups_case
from autograder.exercises.int4.mmap_weights import file_case
from autograder.exercises.int4.products import product_case
from autograder.exercises.int4.sign_extension import bytes_case


def _groups(generator: torch.Generator) -> Iterator[Case]:
    for regime in RANGES:
        size = 4 * drawn(generator, 4, 17)
        columns = drawn(generator, size + 1, 300)
        yield groups_case(drawn(generator, 3, 8), columns, size, regime)
    yield groups_case(1, 1, 1)


def _words(generator: torch.Generator) -> Iterator[Case]:
    yield codes_case(drawn(generator, 3, 20))
    yield codes_case(drawn(generator, 20, 300))


def _words_and_zeros(generator: torch.Generator) -> Iterator[Case]:
    for low, high in ((3, 20), (20, 300)):
        yield codes_case(drawn(generator, low, high), drawn(generator, 1, 15))


def _bytes(generator: torch.Generator) -> Iterator[Case]:
    yield bytes_case(2 * drawn(generator, 257, 900))
    yield bytes_case(2 * drawn(generator, 2, 40))


def _rows(generator: torch.Generator) -> Iterator[Case]:
    for regime in ("distinct", "offset"):
        columns = 128 * drawn(generator, 1, 25)
        yield product_case(1, drawn(generator, 2, 40), columns, regime)
    yield product_case(1, 8 * drawn(generator, 1, 4) + 1, 1024, "sparse")


def _tokens(generator: torch.Generator) -> Iterator[Case]:
    for low, high in ((2, 8), (9, 16), (18, 32), (34, 64)):
        columns = 128 * drawn(generator, 1, 8)
        yield product_case(drawn(generator, low, high), 32, columns)
    yield product_case(drawn(generator, 2, 20), 128, 256, "offset")


def _files(generator: torch.Generator) -> Iterator[Case]:
    for _ in range(3):
        rows, columns = drawn(generator, 2, 90), 8 * drawn(generator, 2, 90)
        yield file_case(rows, columns, drawn(generator, 1, columns))


HIDDEN = {
    "quantize_groups": {"hidden": _groups},
    "pack_int4": {"hidden": _words},
    "unpack_int4": {"hidden": _words_and_zeros},
    "sign_extension": {"hidden": _bytes},
    "int4_gemv": {"hidden": _rows},
    "int4_gemm": {"hidden": _tokens},
    "mmap_weights": {"hidden": _files},
}
