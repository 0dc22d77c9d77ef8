"""Chapter 10: one new token, and its pieces of a KV cache."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Exercise,
    NearMiss,
    Output,
    Outputs,
    Problem,
    Tolerance,
)
from autograder.exercises._flash_attention_triton import (
    BY_ABSORB,
    FACTOR,
    STEM,
    TILE,
    spread,
    with_adapter,
)
from autograder.exercises._flash_attention_triton_cuts import (
    MISTAKEN_CUTS,
    SPLITS,
    Cut,
    as_asked,
)
from autograder.totals import moves

# --- both -------------------------------------------------------------------------


def _decode_case(
    capacity: int, d: int, heads: int, kv_heads: int, regime: str = "ragged"
) -> Case:
    said = {
        "full": "full",
        "ragged": "of several lengths",
        "large": "full, large logits",
    }[regime]
    return Case(
        f"cache of {capacity}, {said}, heads = {heads}, kv_heads = {kv_heads}, d = {d}",
        {"capacity": capacity, "d": d, "heads": heads, "kv_heads": kv_heads},
        regime,
        torch.float16,
    )


def decode_problem(case: Case, generator: torch.Generator) -> Problem:
    size, device = case.sizes, generator.device
    d, capacity = size["d"], size["capacity"]

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(2, *shape, generator=generator, device=device).half()

    q = normal(size["heads"], d)
    k, v = (normal(size["kv_heads"], capacity, d) for _ in range(2))
    # Later keys weigh more: pieces of a cache then differ in their log-sum-exp.
    k = k * torch.linspace(0.5, 2, capacity, device=device).half()[:, None]
    q = q * 40 if case.regime == "large" else q
    lengths = torch.full((2,), capacity, dtype=torch.int32, device=device)
    if case.regime == "ragged":
        lengths = torch.randint(
            1, capacity + 1, (2,), generator=generator, device=device
        ).int()
        lengths[0] = min(3, capacity)  # fewer keys than pieces
    out = {"out": Output(tuple(q.shape), torch.float16)}
    return Problem({"q": q, "k_cache": k, "v_cache": v + 0.5, "lengths": lengths}, out)


def _spread_cache(arguments: Arguments) -> tuple[torch.Tensor, ...]:
    """Return q, k and v in float64, with a head of the cache for each of q's."""
    q = tensor(arguments, "q").double()
    shared = {
        "q": q,
        "k": tensor(arguments, "k_cache"),
        "v": tensor(arguments, "v_cache"),
    }
    return q, *(t.double() for t in spread(shared))


SeenTo = Callable[[int, int, int], int]
Given = Callable[..., tuple[torch.Tensor, torch.Tensor, torch.Tensor]]


def pieces(
    arguments: Arguments,
    cut: Cut = as_asked,
    *,
    absolute: bool = False,
    rounded: bool = False,
    seen_to: SeenTo | None = None,
    given: Given = lambda q, k, v: (q, k, v),
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attend within each piece: (batch, heads, SPLITS, d) and its log-sum-exp.

    Args:
        arguments: of the exercise.
        cut: from a length and the capacity to the pieces' ends.
        absolute: take the values' magnitudes, for the tolerance.
        rounded: round the weights to fp16, relative to the largest, as a kernel does.
        seen_to: from a piece's start and stop and the length to where it ends for its
            mask: what lies behind its stop was loaded as zeros.
        given: what takes the places of q, k and v.
    """
    q, k, v = given(*_spread_cache(arguments))
    v = v.abs() if absolute else v
    batch, heads, d = q.shape
    part = torch.zeros(batch, heads, SPLITS, d, dtype=q.dtype, device=q.device)
    lse = torch.full(part.shape[:3], -math.inf, dtype=q.dtype, device=q.device)
    for b in range(batch):
        length = int(tensor(arguments, "lengths")[b])
        s = torch.einsum("hd,hnd->hn", q[b], k[b]) / math.sqrt(d)
        for i, (start, stop) in enumerate(cut(length, k.shape[2])):
            if start >= stop:
                continue
            own, values = s[:, start:stop], v[b, :, start:stop]
            if seen_to:
                end = seen_to(start, stop, length)
                own = torch.nn.functional.pad(own, (0, end - stop))
                values = torch.nn.functional.pad(values, (0, 0, 0, end - stop))
            e = torch.exp(own - own.amax(-1, keepdim=True))
            weights = e.half().double() if rounded else e
            total = e.sum(-1, keepdim=True)
            part[b, :, i] = torch.einsum("hn,hnd->hd", weights / total, values)
            lse[b, :, i] = own.logsumexp(-1)
    return part, lse


def _by_planes(part: torch.Tensor, lse: torch.Tensor, kv_heads: int) -> Outputs:
    """Give the pieces in the order in which the kernel writes them."""
    batch, heads, splits, d = part.shape
    group = heads // kv_heads
    part = part.view(batch * kv_heads, group, splits, d).transpose(1, 2)
    lse = lse.view(batch * kv_heads, group, splits).transpose(1, 2)
    return {"part": part.contiguous(), "lse": lse.contiguous()}


def _pieces_of(arguments: Arguments, cut: Cut = as_asked, **how: Any) -> Outputs:
    kv_heads = tensor(arguments, "k_cache").shape[1]
    return _by_planes(*pieces(arguments, cut, **how), kv_heads)


def decoded(
    arguments: Arguments,
    weigh: Callable[[torch.Tensor], torch.Tensor] = lambda lse: torch.softmax(lse, -1),
    *,
    absolute: bool = False,
) -> Outputs:
    """Put the pieces together, by their log-sum-exp or by mistake."""
    part, lse = pieces(arguments, absolute=absolute)
    return {"out": (part * weigh(lse)[..., None]).sum(2)}


def decode_hidden(generator: torch.Generator) -> Iterator[Case]:
    capacity = int(torch.randint(100, 250, (), generator=generator))
    yield _decode_case(2 * capacity, 32, 6, 2, "full")
    yield _decode_case(capacity, 32, 6, 2)
    yield _decode_case(int(torch.randint(5, 60, (), generator=generator)), 16, 3, 1)


# 2 * 2 KV heads of 200 keys and as many values, 50 a piece: a tile has room for more.
# And q for each piece; parts and lse once.

FIRST = (_decode_case(200, 64, 4, 2, "full"), _decode_case(150, 64, 3, 1))
# Pieces of more than a tile, 132 keys; and logits whose exponentials overflow.
_LONG, LARGE = _decode_case(525, 32, 3, 1, "full"), _decode_case(90, 32, 3, 1, "large")
SHORT = _decode_case(1, 16, 2, 2)

# --- decode_pieces ----------------------------------------------------------------


def _pieces_problem(case: Case, generator: torch.Generator) -> Problem:
    size = case.sizes
    planes, group = 2 * size["kv_heads"], size["heads"] // size["kv_heads"]
    shape = (planes, SPLITS, group)
    outputs = {
        "part": Output((*shape, size["d"]), torch.float16),
        "lse": Output(shape, torch.float32),
    }
    return Problem(decode_problem(case, generator).arguments, outputs)


def _pieces_scale(arguments: Arguments) -> Outputs:
    """Return what part and lse may err by: weights of fp16, logits of fp32."""
    q, k, _ = _spread_cache(arguments)
    most = torch.einsum("bhd,bhnd->bhn", q.abs(), k.abs()).amax(-1) / q.shape[2] ** 0.5
    part, lse = pieces(arguments, absolute=True)
    # A logit is a sum of products, in any order: some eps of its magnitudes' sum. The
    # exponentials' sum and its logarithm add some eps of 1.
    error = 8 * (1 + most)[..., None].expand_as(lse)
    return _by_planes(part, error, tensor(arguments, "k_cache").shape[1])


def _wrongly_cut(cut: Cut) -> Callable[[Arguments], Outputs]:
    return lambda arguments: _pieces_of(arguments, cut, rounded=True)


def _first_tile_again(arguments: Arguments, of_piece: bool = True) -> Outputs:
    """Return what is left where each step takes the first tile, of piece or cache."""

    def cut(length: int, capacity: int) -> list[tuple[int, int]]:
        asked = as_asked(length, capacity)
        begun = [(start if of_piece else 0, stop) for start, stop in asked]
        kept = [(start, min(start + TILE, stop)) for start, stop in begun]
        return [
            own if start < stop else (0, 0)
            for own, (start, stop) in zip(kept, asked, strict=True)
        ]

    part, lse = pieces(arguments, cut, rounded=True)
    for b, length in enumerate(tensor(arguments, "lengths").tolist()):
        for i, (start, stop) in enumerate(as_asked(length, 0)):
            lse[b, :, i] += math.log(max(1, -(-(stop - start) // TILE)))
    return _by_planes(part, lse, tensor(arguments, "k_cache").shape[1])


def _tiles_end(start: int, stop: int) -> int:
    return start + -(-(stop - start) // TILE) * TILE


_PAST = (
    "Keys behind a piece's end take part: load_rows put zeros there, and a logit of 0 "
    "weighs like any other. seen must be false from stop on."
)


def _piece_slip(name: str, message: str, **how: Any) -> NearMiss:
    return NearMiss(name, lambda a: _pieces_of(a, rounded=True, **how), message)


def _first_plane(x: torch.Tensor) -> torch.Tensor:
    return x[:1, :1].expand_as(x)


_PLANE = (
    "Every program reads the {} of the first KV head of all: its own begin at row "
    "plane * capacity."
)
_PIECES_SLIPS = (
    _piece_slip(
        "seen past the piece",
        _PAST,
        seen_to=lambda start, stop, length: min(length, _tiles_end(start, stop)),
    ),
    _piece_slip(
        "whole tiles seen",
        _PAST,
        seen_to=lambda start, stop, length: _tiles_end(start, stop),
    ),
    _piece_slip(
        "one key too many",
        "The first key behind a piece's end takes part: cols < stop.",
        seen_to=lambda start, stop, length: min(stop + 1, _tiles_end(start, stop)),
    ),
    _piece_slip(
        "nothing absorbed",
        "No piece has seen a key: absorb returns most, total and acc anew, most, "
        "total, acc = absorb(...), for each tile from start to stop.",
        cut=lambda length, capacity: [(0, 0)] * SPLITS,
    ),
    _piece_slip(
        "keys for values",
        "part is a mean of keys: v is loaded from v_ptr.",
        given=lambda q, k, v: (q, k, k),
    ),
    _piece_slip(
        "values for keys",
        "The logits are made of values: k is loaded from k_ptr.",
        given=lambda q, k, v: (q, v, v),
    ),
    _piece_slip(
        "keys and values exchanged",
        "Keys and values have changed places: absorb takes q, k, v.",
        given=lambda q, k, v: (q, v, k),
    ),
    _piece_slip(
        "scale handed on twice",
        "The products q . k are multiplied by scale twice: absorb takes scale as it "
        "is.",
        given=lambda q, k, v: (q * q.shape[2] ** -0.5, k, v),
    ),
    _piece_slip(
        "scale not handed on",
        "The products q . k are not multiplied by scale: it is absorb's fifth "
        "argument.",
        given=lambda q, k, v: (q * q.shape[2] ** 0.5, k, v),
    ),
    _piece_slip(
        "keys of the first head",
        _PLANE.format("keys"),
        given=lambda q, k, v: (q, _first_plane(k), v),
    ),
    _piece_slip(
        "values of the first head",
        _PLANE.format("values"),
        given=lambda q, k, v: (q, k, _first_plane(v)),
    ),
    _piece_slip(
        "the first head's alone",
        _PLANE.format("keys and values"),
        given=lambda q, k, v: (q, _first_plane(k), _first_plane(v)),
    ),
)
DECODE_PIECES = Exercise(
    id="decode_pieces",
    stem=STEM,
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
    problem=_pieces_problem,
    reference=_pieces_of,
    cases=(*FIRST, _LONG, SHORT),
    hidden=decode_hidden,
    tolerance=Tolerance(factor=FACTOR, scale=_pieces_scale),
    near_misses=(
        NearMiss(
            "first tile again",
            _first_tile_again,
            "Each step takes the first tile of the piece: cols begins at `first`, "
            "which moves on by COLS.",
        ),
        NearMiss(
            "first tile of the cache again",
            partial(_first_tile_again, of_piece=False),
            "Each step takes the first keys of the cache: cols begins at `first`, "
            "which goes from start to stop.",
        ),
        *(
            NearMiss(name, _wrongly_cut(cut), message)
            for name, cut, message in MISTAKEN_CUTS
        ),
        *_PIECES_SLIPS,
    ),
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
