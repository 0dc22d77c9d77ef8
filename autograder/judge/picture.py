"""A small picture of where an output is wrong, as text and as SVG."""

from __future__ import annotations

import torch

from autograder.judge.values import Wrong

WIDTH, HEIGHT = 64, 16
RIGHT, BAD, UNTOUCHED = ".", "#", "_"
LEGEND = f"{RIGHT} right   {BAD} wrong   {UNTOUCHED} never written"
_WORDS = {RIGHT: "right", BAD: "wrong", UNTOUCHED: "never written"}


def picture(wrong: Wrong) -> list[str]:
    """Draw an output as rows of characters; one may stand for several elements.

    A matrix keeps its rows and columns; anything else is laid out in lines. Where
    elements share a character, the worst of them is shown.
    """
    worst = wrong.wrong.to(torch.int8)
    # Never written is told apart from wrong only where nothing else is wrong in it.
    worst = torch.where(wrong.untouched, torch.ones_like(worst), worst * 2)
    if len(wrong.shape) == 2 and min(wrong.shape) > 1:
        grid = worst.reshape(wrong.shape)
    else:
        grid = _in_lines(worst)
    grid = _shrink(grid)
    signs = {-1: " ", 0: RIGHT, 1: UNTOUCHED, 2: BAD}
    return ["".join(signs[int(v)] for v in row).rstrip() for row in grid]


def svg(rows: list[str]) -> str:
    """Draw the rows of ``picture`` as squares; colours come from the page's style."""
    cell, gap = 8, 1
    width = max((len(row) for row in rows), default=0) * cell
    kinds = {RIGHT: "right", BAD: "wrong", UNTOUCHED: "untouched"}
    shapes = [
        f'<rect class="kw-{kinds[sign]}" x="{x * cell}" y="{y * cell}" '
        f'width="{cell - gap}" height="{cell - gap}"/>'
        for y, row in enumerate(rows)
        for x, sign in enumerate(row)
        if sign in kinds
    ]
    present = [_WORDS[s] for s in _WORDS if any(s in row for row in rows)]
    return (
        f'<svg class="kw-picture" role="img" viewBox="0 0 {width} {len(rows) * cell}" '
        f'width="{width}" height="{len(rows) * cell}">'
        f"<title>Where the output is {', '.join(present)}</title>"
        f"{''.join(shapes)}</svg>"
    )


def _in_lines(flat: torch.Tensor) -> torch.Tensor:
    """Lay a long row out in lines; places past its end hold -1."""
    width = min(WIDTH, max(1, flat.numel()))
    # So many elements share a character that all lines fit.
    share = -(-flat.numel() // (WIDTH * HEIGHT))
    if share > 1:
        padded = torch.full((-(-flat.numel() // share) * share,), -1, dtype=torch.int8)
        padded[: flat.numel()] = flat
        flat = padded.reshape(-1, share).amax(dim=1)
        width = WIDTH
    lines = -(-flat.numel() // width)
    grid = torch.full((lines * width,), -1, dtype=torch.int8)
    grid[: flat.numel()] = flat
    return grid.reshape(lines, width)


def _shrink(grid: torch.Tensor) -> torch.Tensor:
    rows, columns = grid.shape
    down, across = -(-rows // HEIGHT), -(-columns // WIDTH)
    if down == across == 1:
        return grid
    tall, wide = -(-rows // down) * down, -(-columns // across) * across
    padded = torch.full((tall, wide), -1, dtype=torch.int8)
    padded[:rows, :columns] = grid
    blocks = padded.reshape(tall // down, down, wide // across, across)
    return blocks.amax(dim=3).amax(dim=1)
