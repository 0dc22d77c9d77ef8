"""Which positions a model computes while it generates, pass by pass."""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.draw import palette
from kernelwright.draw.live import Explorer, Picture
from kernelwright.draw.steps import Frame, Steps
from kernelwright.errors import ArgumentError

_MOST = 24  # positions that can still be read in one picture
_WIDTH, _LEFT, _TOP = 492.0, 64.0, 40.0
_ROW = 20.0

WAYS = ("nothing kept", "KV cache", "two guesses a pass")


def explore_positions(
    *,
    prompts: Sequence[int] = (4, 8, 12),
    new: int = 9,
    ways: Sequence[str] = WAYS,
) -> Explorer:
    """Let the reader choose a prompt and a way to generate, and count positions.

    Args:
        prompts: lengths to choose from.
        new: tokens to generate.
        ways: of ``nothing kept``, ``KV cache`` and ``two guesses a pass``, in which
            all guesses are right.

    Raises:
        ArgumentError: there is too much for one picture.
    """
    if new < 1 or min(prompts) < 1 or max(prompts) + new > _MOST:
        raise ArgumentError(
            f"prompts of {tuple(prompts)} and {new} tokens; wanted 1 or more of each, "
            f"and {_MOST} in all, which can be read in one picture."
        )

    def draw(prompt: int, way: str) -> Picture:
        return _pictured(prompt, new, passes(prompt, new, way))

    return Explorer(
        {"prompt": tuple(prompts), "way": tuple(ways)},
        draw,
        "A row is a pass of the model, a column a position of the text. Full boxes are "
        "computed in that pass, pale ones are read from the cache. Blue is the prompt.",
    )


def passes(prompt: int, new: int, way: str) -> list[range]:
    """Return the positions that each pass computes."""
    last = prompt + new - 1  # the last token is chosen, and never computed
    if way == "nothing kept":
        return [range(end) for end in range(prompt, last + 1)]
    each = 3 if way == "two guesses a pass" else 1
    found = [range(prompt)]
    while found[-1].stop < last:
        begin = found[-1].stop
        found.append(range(begin, min(begin + each, last)))
    return found


def _pictured(prompt: int, new: int, rows: list[range]) -> Picture:
    column = (_WIDTH - _LEFT - 8) / (prompt + new)
    parts = [palette.text(4, 20, "pass", class_="kw-head")]
    parts.append(palette.text(_LEFT, 20, "position", class_="kw-head"))
    for index, row in enumerate(rows):
        y = _TOP + index * _ROW
        parts.append(palette.text(14, y + 13, str(index + 1)))
        for place in range(row.stop):
            colour = f"--c: {palette.series(0 if place < prompt else 1)}"
            look = "kw-used" if place in row else "kw-none"
            parts.append(
                palette.box(_LEFT + place * column, y, column - 2, _ROW - 4,
                            class_=look, style=colour)
            )  # fmt: skip
    height = _TOP + (prompt + new) * _ROW
    drawn = Steps([Frame("".join(parts), "")], "", _WIDTH, height, "", "",
                  wide=False, narrow=True)  # fmt: skip
    computed = sum(map(len, rows))
    least = prompt + new - 1
    words = (
        f"{new} tokens after {prompt}: {len(rows)} passes compute {computed} "
        f"positions, {computed / least:.2g} times the {least} that are needed."
    )
    return Picture(drawn, words)
