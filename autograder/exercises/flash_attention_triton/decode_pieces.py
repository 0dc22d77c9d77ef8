"""One new token, and a piece of its KV cache a program."""

from __future__ import annotations

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Exercise,
    Output,
    Outputs,
    Problem,
    Tolerance,
)
from autograder.exercises.flash_attention_triton.cache import (
    FIRST,
    SHORT,
    SPLITS,
    decode_case,
    decode_problem,
    pieces,
    spread_cache,
)
from autograder.exercises.flash_attention_triton.shared import (
    BY_ABSORB,
    FACTOR,
    with_adapter,
)
from autograder.ideals import moves


def _problem(case: Case, generator: torch.Generator) -> Problem:
    size = case.sizes
    planes, group = 2 * size["kv_heads"], size["heads"] // size["kv_heads"]
    shape = (planes, SPLITS, group)
    outputs = {
        "part": Output((*shape, size["d"]), torch.float16),
        "lse": Output(shape, torch.float32),
    }
    return Problem(decode_problem(case, generator).arguments, outputs)


def _by_planes(arguments: Arguments, part: torch.Tensor, lse: torch.Tensor) -> Outputs:
    """Give the pieces in the order in which the kernel writes them."""
    kv_heads = tensor(arguments, "k_cache").shape[1]
    made = {"part": part, "lse": lse}
    return {
        name: x.unflatten(1, (kv_heads, -1)).flatten(0, 1).transpose(1, 2).contiguous()
        for name, x in made.items()
    }


def _reference(arguments: Arguments) -> Outputs:
    return _by_planes(arguments, *pieces(arguments))


def _scales(arguments: Arguments) -> Outputs:
    """Return what part and lse may err by: weights of fp16, logits of fp32."""
    q, k, _ = spread_cache(arguments)
    most = torch.einsum("bhd,bhnd->bhn", q.abs(), k.abs()).amax(-1) / q.shape[2] ** 0.5
    part, lse = pieces(arguments, absolute=True)
    # A logit is a sum of products, in any order: some eps of its magnitudes' sum. The
    # exponentials' sum and its logarithm add some eps of 1.
    return _by_planes(arguments, part, 8 * (1 + most)[..., None].expand_as(lse))


DECODE_PIECES = Exercise(
    id="decode_pieces",
    title="One token, a long cache, many programs",
    kind="core",
    points=10,
    language="python",
    entry="function",
    name="decode_pieces",
    source="solutions/flash_attention_triton/pieces.py",
    goal="Cut each sequence's cache into SPLITS pieces, and walk over one.",
    requirements=(
        "Of the first `length` keys piece `p` takes `size` from `p * size` on, where "
        "`size` is `length / SPLITS`, rounded up. The last pieces may have fewer, or "
        "none.",
        "`plane` counts the KV heads of all sequences: its keys begin at row "
        "`plane * capacity` of the cache.",
        "`absorb` takes each tile in; no key from `stop` on is loaded or seen.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(
        *FIRST,
        # Pieces of more than a tile, 132 keys.
        decode_case(525, 32, 3, 1, "full"),
        SHORT,
    ),
    tolerance=Tolerance(factor=FACTOR, scale=_scales),
    hints=(
        "Two numbers say what a piece is: where it begins and where it stops. The rest "
        "is the walk of flash_kernel, between these two.",
        "size = tl.cdiv(length, SPLITS); start = piece * size; stop is the smaller of "
        "start + size and length. Keys begin at row plane * capacity.",
        "for first in tl.range(start, stop, COLS): cols = first + tl.arange(0, COLS); "
        "k = load_rows(k_ptr, plane * capacity, cols, stop, D), v likewise; seen = "
        "(r[:, None] >= 0) & (cols[None, :] < stop); then absorb.",
    ),
    onward="With 64 planes on 132 SMs, how many pieces would you choose, and why?",
    counts=moves({"q": SPLITS, "lengths": 2 * SPLITS}, writes=None),
    structure=(BY_ABSORB,),
    needs=("absorb_tile",),
    prelude=with_adapter("adapt_pieces"),
)
