"""Where chapter 10's pieces of a cache begin and end: as asked, and by mistake."""

from __future__ import annotations

from collections.abc import Callable

from autograder.exercises._flash_attention_triton import TILE

SPLITS = 4
Cut = Callable[[int, int], list[tuple[int, int]]]


def as_asked(length: int, capacity: int) -> list[tuple[int, int]]:
    """Return where each piece begins and ends; some may be empty."""
    return _of(_asked_size(length), length)


def _asked_size(length: int) -> int:
    return -(-length // SPLITS)


def _of(size: int, length: int) -> list[tuple[int, int]]:
    """Cut into pieces of a size, as far as there are keys."""
    return [(i * size, min((i + 1) * size, length)) for i in range(SPLITS)]


def _in_tiles(size: int) -> int:
    return -(-size // TILE) * TILE


def _rounded_down(length: int, capacity: int) -> list[tuple[int, int]]:
    size = length // SPLITS
    return [(i * size, (i + 1) * size) for i in range(SPLITS)]


def _not_stopped(length: int, capacity: int) -> list[tuple[int, int]]:
    size = _asked_size(length)
    ends = [(i * size, (i + 1) * size) for i in range(SPLITS)]
    return [(min(a, capacity), min(z, capacity)) for a, z in ends]


def _by_the_tile(length: int, capacity: int) -> list[tuple[int, int]]:
    starts = [i * TILE for i in range(SPLITS)]
    return [(at, min(at + _asked_size(length), length)) for at in starts]


def _first_keys(length: int, capacity: int) -> list[tuple[int, int]]:
    stops = [stop for _, stop in as_asked(length, capacity)]
    return [(0, min(_in_tiles(_asked_size(length)), stop)) for stop in stops]


def _to_the_tiles_end(length: int, capacity: int) -> list[tuple[int, int]]:
    asked = as_asked(length, capacity)
    return [(a, min(a + _in_tiles(z - a), length)) for a, z in asked]


_ELSEWHERE = (
    "The cache is cut elsewhere than it is asked for: size is length / SPLITS, rounded "
    "up, and piece p takes the keys from p * size on."
)
_ALL_IN_ONE = "The first piece takes all keys: size is length / SPLITS, rounded up."
MISTAKEN_CUTS: tuple[tuple[str, Cut, str], ...] = (
    (
        "capacity for length",
        lambda length, capacity: as_asked(capacity, capacity),
        "The whole cache is read, the part that holds nothing yet too: stop at length.",
    ),
    (
        "pieces of the capacity",
        lambda length, capacity: _of(_asked_size(capacity), length),
        "The pieces are cut by the capacity, and the first programs have all keys of a "
        "short sequence: size = tl.cdiv(length, SPLITS).",
    ),
    (
        "pieces rounded down",
        _rounded_down,
        "The last keys are missing: length / SPLITS must be rounded up, and the last "
        "piece stops at length.",
    ),
    (
        "not stopped",
        _not_stopped,
        "The last piece reads past the sequence's end: it stops at the smaller of "
        "start + size and length.",
    ),
    (
        "a tile for a piece",
        _by_the_tile,
        "Pieces begin COLS keys apart, whatever their size: piece p begins at p * "
        "size.",
    ),
    (
        "pieces of a tile",
        lambda length, capacity: _of(TILE, length),
        "A piece is COLS keys: it is length / SPLITS, rounded up.",
    ),
    ("one more in each", lambda n, _: _of(n // SPLITS + 1, n), _ELSEWHERE),
    ("whole tiles", lambda n, _: _of(_in_tiles(_asked_size(n)), n), _ELSEWHERE),
    ("two pieces", lambda n, _: _of(-(-n // 2), n), _ELSEWHERE),
    ("from the end", lambda n, _: as_asked(n, n)[::-1], _ELSEWHERE),
    (
        "evenly",
        lambda n, _: [(i * n // SPLITS, (i + 1) * n // SPLITS) for i in range(SPLITS)],
        _ELSEWHERE,
    ),
    ("all in the first", lambda n, _: _of(n, n), _ALL_IN_ONE),
    (
        "first piece each time",
        lambda n, _: [(0, _asked_size(n))] * SPLITS,
        "Every piece takes the first `size` keys: piece p begins at p * size.",
    ),
    (
        "the first keys of the cache",
        _first_keys,
        "Every piece begins with the first key of its sequence: the walk goes from "
        "start to stop.",
    ),
    (
        "every piece whole",
        lambda length, capacity: [(0, length)] * SPLITS,
        "Every piece takes all keys of its sequence: piece p takes `size` of them, "
        "from p * size on.",
    ),
    (
        "from the first key",
        lambda *sizes: [(0, stop) for _, stop in as_asked(*sizes)],
        "Every piece begins with the first key, and earlier ones count again: the walk "
        "goes from start to stop.",
    ),
    (
        "to the last key",
        lambda n, _: [(start, n) for start, _ in as_asked(n, n)],
        "Every piece goes on to the sequence's end, and later keys count again: it "
        "stops at start + size.",
    ),
    (
        "stopped at size",
        lambda n, _: [(start, _asked_size(n)) for start, _ in as_asked(n, n)],
        "The pieces after the first hold nothing: stop is start + size, not size.",
    ),
    (
        "to the tile's end",
        _to_the_tiles_end,
        "Keys behind a piece's end take part, and count again in the next: seen must "
        "be false from stop on.",
    ),
    (
        "last key of each missing",
        lambda n, _: [(start, stop - 1) for start, stop in as_asked(n, n)],
        "The last key of each piece is missing: stop is the first key after it.",
    ),
    (
        "last key of all missing",
        lambda n, _: [(start, min(stop, n - 1)) for start, stop in as_asked(n, n)],
        "The last key of the sequence is missing: there are `length` of them, from 0 "
        "on.",
    ),
    (
        "first key of each missing",
        lambda n, _: [(start + 1, stop) for start, stop in as_asked(n, n)],
        "The first key of each piece is missing: start is a key of it.",
    ),
)
