"""Chapter 10's split KV cache: one token, a long cache, many programs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Count,
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
    PRELUDE,
    STEM,
    TILE,
    made_in_triton,
    spread,
    with_adapter,
)

# --- both -------------------------------------------------------------------------

_SPLITS = 4


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


def _decode_problem(case: Case, generator: torch.Generator) -> Problem:
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


Cut = Callable[[int, int], list[tuple[int, int]]]


def _as_asked(length: int, capacity: int) -> list[tuple[int, int]]:
    """Return where each piece begins and ends; some may be empty."""
    size = -(-length // _SPLITS)
    return [(i * size, min((i + 1) * size, length)) for i in range(_SPLITS)]


def pieces(
    arguments: Arguments,
    cut: Cut = _as_asked,
    *,
    absolute: bool = False,
    rounded: bool = False,
    seen_past: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attend within each piece: (batch, heads, SPLITS, d) and its log-sum-exp.

    Args:
        arguments: of the exercise.
        cut: from a length and the capacity to the pieces' ends.
        absolute: take the values' magnitudes, for the tolerance.
        rounded: round the weights to fp16, relative to the largest, as a kernel does.
        seen_past: count the keys behind a piece's end, loaded as zeros, that a whole
            tile has room for.
    """
    q, k, v = _spread_cache(arguments)
    v = v.abs() if absolute else v
    batch, heads, d = q.shape
    part = torch.zeros(batch, heads, _SPLITS, d, dtype=q.dtype, device=q.device)
    lse = torch.full(part.shape[:3], -math.inf, dtype=q.dtype, device=q.device)
    for b in range(batch):
        length = int(tensor(arguments, "lengths")[b])
        s = torch.einsum("hd,hnd->hn", q[b], k[b]) / math.sqrt(d)
        for i, (start, stop) in enumerate(cut(length, k.shape[2])):
            if start >= stop:
                continue
            own, values = s[:, start:stop], v[b, :, start:stop]
            if seen_past:
                end = min(length, start + -(-(stop - start) // TILE) * TILE)
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


def _pieces_of(arguments: Arguments, cut: Cut = _as_asked, **how: bool) -> Outputs:
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


def _decode_hidden(generator: torch.Generator) -> Iterator[Case]:
    capacity = int(torch.randint(100, 250, (), generator=generator))
    yield _decode_case(2 * capacity, 32, 6, 2, "full")
    yield _decode_case(capacity, 32, 6, 2)
    yield _decode_case(int(torch.randint(5, 60, (), generator=generator)), 16, 3, 1)


# 2 * 2 KV heads of 256 keys and as many values; q for each piece; parts and lse once.
_PIECES_LOADS = 4 * 2 * 256 * 128 + 4 * _SPLITS * (2 * 128 + 4)
_DECODE_LOADS = _PIECES_LOADS + 8 * _SPLITS * 65 * 4

_FIRST = (_decode_case(256, 64, 4, 2, "full"), _decode_case(150, 64, 3, 1))
# Pieces of more than a tile, 132 keys; and logits whose exponentials overflow.
_LONG, _LARGE = _decode_case(525, 32, 3, 1, "full"), _decode_case(90, 32, 3, 1, "large")
_SHORT = _decode_case(1, 16, 2, 2)

# --- decode_pieces ----------------------------------------------------------------


def _pieces_problem(case: Case, generator: torch.Generator) -> Problem:
    size = case.sizes
    planes, group = 2 * size["kv_heads"], size["heads"] // size["kv_heads"]
    shape = (planes, _SPLITS, group)
    outputs = {
        "part": Output((*shape, size["d"]), torch.float16),
        "lse": Output(shape, torch.float32),
    }
    return Problem(_decode_problem(case, generator).arguments, outputs)


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


def _rounded_down(length: int, capacity: int) -> list[tuple[int, int]]:
    size = length // _SPLITS
    return [(i * size, (i + 1) * size) for i in range(_SPLITS)]


def _by_the_tile(length: int, capacity: int) -> list[tuple[int, int]]:
    size = -(-length // _SPLITS)
    starts = [i * TILE for i in range(_SPLITS)]
    return [(at, min(at + size, length)) for at in starts]


def _first_keys(length: int, capacity: int) -> list[tuple[int, int]]:
    size = -(-length // _SPLITS)
    stops = [stop for _, stop in _as_asked(length, capacity)]
    return [(0, min(-(-size // TILE) * TILE, stop)) for stop in stops]


def _first_tile_again(arguments: Arguments) -> Outputs:
    """Return what is left where each step of a piece takes its first tile."""

    def cut(length: int, capacity: int) -> list[tuple[int, int]]:
        asked = _as_asked(length, capacity)
        return [(start, min(start + TILE, stop)) for start, stop in asked]

    part, lse = pieces(arguments, cut, rounded=True)
    for b, length in enumerate(tensor(arguments, "lengths").tolist()):
        for i, (start, stop) in enumerate(_as_asked(length, 0)):
            lse[b, :, i] += math.log(max(1, -(-(stop - start) // TILE)))
    return _by_planes(part, lse, tensor(arguments, "k_cache").shape[1])


def _not_stopped(length: int, capacity: int) -> list[tuple[int, int]]:
    size = -(-length // _SPLITS)
    ends = [(i * size, (i + 1) * size) for i in range(_SPLITS)]
    return [(min(a, capacity), min(z, capacity)) for a, z in ends]


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
        "Piece `p` takes keys from `start` to `stop`; together they take the first "
        "`length` keys, each once. A piece may be empty.",
        "`plane` counts the KV heads of all sequences: its keys begin at row "
        "`plane * capacity` of the cache.",
        "`absorb` takes each tile in; no key from `stop` on is loaded or seen.",
    ),
    problem=_pieces_problem,
    reference=_pieces_of,
    cases=(*_FIRST, _LONG, _SHORT),
    hidden=_decode_hidden,
    tolerance=Tolerance(factor=FACTOR, scale=_pieces_scale),
    near_misses=(
        NearMiss(
            "capacity for length",
            _wrongly_cut(lambda length, capacity: _as_asked(capacity, capacity)),
            "The whole cache is read, the part that holds nothing yet too: stop at "
            "length.",
        ),
        NearMiss(
            "pieces rounded down",
            _wrongly_cut(_rounded_down),
            "The last keys are missing: length / SPLITS must be rounded up, and the "
            "last piece stops at length.",
        ),
        NearMiss(
            "not stopped",
            _wrongly_cut(_not_stopped),
            "The last piece reads past the sequence's end: it stops at the smaller of "
            "start + size and length.",
        ),
        NearMiss(
            "seen past the piece",
            lambda arguments: _pieces_of(arguments, rounded=True, seen_past=True),
            "Keys behind a piece's end take part: load_rows put zeros there, and a "
            "logit of 0 weighs like any other. seen must be false from stop on.",
        ),
        NearMiss(
            "first tile again",
            _first_tile_again,
            "Each step takes the first tile of the piece: cols begins at `first`, "
            "which moves on by COLS.",
        ),
        NearMiss(
            "a tile for a piece",
            _wrongly_cut(_by_the_tile),
            "Pieces begin COLS keys apart, whatever their size: piece p begins at p * "
            "size.",
        ),
        NearMiss(
            "the first keys of the cache",
            _wrongly_cut(_first_keys),
            "Every piece begins with the first key of its sequence: the walk goes from "
            "start to stop.",
        ),
        NearMiss(
            "every piece whole",
            _wrongly_cut(lambda length, capacity: [(0, length)] * _SPLITS),
            "Every piece takes all keys of its sequence: piece p takes `size` of them, "
            "from p * size on.",
        ),
        NearMiss(
            "from the first key",
            _wrongly_cut(lambda *sizes: [(0, stop) for _, stop in _as_asked(*sizes)]),
            "Every piece begins with the first key, and earlier ones count again: the "
            "walk goes from start to stop.",
        ),
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
    counts=(
        Count(
            "bytes", "global", "load", at_most=1.05 * _PIECES_LOADS, ideal=_PIECES_LOADS
        ),
    ),
    structure=(BY_ABSORB,),
    needs=("absorb_tile",),
    prelude=with_adapter("adapt_pieces"),
)

# --- decode_split_kv --------------------------------------------------------------


def _not_normalised(lse: torch.Tensor) -> torch.Tensor:
    return torch.exp(lse - lse.amax(-1, keepdim=True))


def _overflowing(lse: torch.Tensor) -> torch.Tensor:
    weights = torch.exp(lse.float())
    return (weights / weights.sum(-1, keepdim=True)).double()


DECODE_SPLIT_KV = Exercise(
    id="decode_split_kv",
    stem=STEM,
    title="The pieces put together",
    kind="core",
    points=10,
    language="python",
    entry="function",
    name="decode_split_kv",
    source="solutions/flash_attention_triton/split.py",
    goal="Put the pieces' outputs together by their log-sum-exp.",
    requirements=(
        "The whole is the pieces' outputs weighed by exp(lse), normalised.",
        "No exponential overflows; an empty piece, whose lse is -inf, weighs nothing.",
    ),
    problem=_decode_problem,
    reference=decoded,
    cases=(*_FIRST, _LARGE, _SHORT),
    hidden=_decode_hidden,
    tolerance=Tolerance(factor=FACTOR, scale=lambda a: decoded(a, absolute=True)),
    near_misses=(
        NearMiss(
            "pieces averaged",
            lambda a: decoded(a, lambda lse: torch.full_like(lse, 1 / _SPLITS)),
            "All pieces weigh the same: a piece weighs exp(lse), the sum of its keys' "
            "exponentials.",
        ),
        NearMiss(
            "powers of two",
            lambda a: decoded(a, lambda lse: torch.softmax(lse * math.log(2), -1)),
            "A piece weighs e^lse, and here it weighs 2^lse: lse is a natural "
            "logarithm, so take tl.exp.",
        ),
        NearMiss(
            "logarithms for weights",
            lambda a: decoded(a, lambda lse: lse / lse.sum(-1, keepdim=True)),
            "The logarithms themselves are taken for weights: a piece weighs exp(lse).",
        ),
        NearMiss(
            "overflow",
            lambda a: decoded(a, _overflowing),
            "exp(lse) overflows where logits are large: take exp(lse - the largest "
            "lse), and what is subtracted divides out.",
        ),
        NearMiss(
            "pieces added",
            lambda a: decoded(a, torch.ones_like),
            "The pieces are added as they are: each is a mean of its own keys' values, "
            "and weighs exp(lse) among all.",
        ),
        NearMiss(
            "weights not normalised",
            lambda a: decoded(a, _not_normalised),
            "The weights do not sum to 1: divide by their sum.",
        ),
    ),
    hints=(
        "Each piece is a softmax over its own keys, right but for its normalisation. "
        "exp(lse) is what it was divided by.",
        "The weights are exp(lse - max of lse): the largest is 1, none overflows, and "
        "what they are relative to divides out.",
        "weight = tl.exp(lse - tl.max(lse, 0)); out = tl.sum(part * weight[:, None], "
        "0) / tl.sum(weight, 0).",
    ),
    onward="Let the program that finishes last combine the pieces: what is saved?",
    counts=(
        Count(
            "bytes", "global", "load", at_most=1.05 * _DECODE_LOADS, ideal=_DECODE_LOADS
        ),
    ),
    structure=(made_in_triton("tl.load", "tl.store"),),
    needs=("absorb_tile", "decode_pieces"),
    prelude=PRELUDE,
)
