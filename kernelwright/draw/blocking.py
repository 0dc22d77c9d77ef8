"""How many sums a thread should keep: a matrix product traced for each choice."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from kernelwright.cuda import compile
from kernelwright.draw import palette
from kernelwright.draw.live import Explorer, Picture
from kernelwright.draw.steps import Frame, Steps
from kernelwright.trace.report import TraceReport

# 256 threads, each with SUMS x SUMS sums: chapter 6's blocked kernel for any SUMS.
BLOCKED = """
template <int SUMS>
__global__ void blocked(const float* a, const float* b, float* c, int k) {
    const int SIDE = 16 * SUMS;  // of the block's square of c
    __shared__ float a_tile[SIDE][16], b_tile[16][SIDE];
    int x = threadIdx.x, y = threadIdx.y;
    float sums[SUMS][SUMS] = {};
    for (int first = 0; first < k; first += 16) {
        for (int e = y * 16 + x; e < SIDE * 16; e += 256) {
            a_tile[e / 16][e % 16] = a[e / 16 * k + first + e % 16];
            b_tile[e / SIDE][e % SIDE] = b[(first + e / SIDE) * SIDE + e % SIDE];
        }
        __syncthreads();
        for (int i = 0; i < 16; ++i) {
            float rows[SUMS], columns[SUMS];
            for (int r = 0; r < SUMS; ++r) {
                rows[r] = a_tile[y + 16 * r][i];
                columns[r] = b_tile[i][x + 16 * r];
            }
            for (int r = 0; r < SUMS; ++r)
                for (int s = 0; s < SUMS; ++s) sums[r][s] += rows[r] * columns[s];
        }
        __syncthreads();
    }
    for (int r = 0; r < SUMS; ++r)
        for (int s = 0; s < SUMS; ++s)
            c[(y + 16 * r) * SIDE + x + 16 * s] = sums[r][s];
}
"""
_THREADS, _STEPS = 16, 16
# An H200's SM in one clock: 128 products (data sheet: 67 TFLOP/s on 132 SMs at
# 1.98 GHz), one wavefront, and its share of 4,283 GB/s, measured.
PRODUCTS, WAVEFRONTS, BYTES = 128, 1, 16
_WIDTH, _HEIGHT, _PICTURE = 720.0, 292.0, 190.0


def explore_blocking(
    run: Callable[[int], TraceReport] | None = None,
    sums: Sequence[int] = (1, 2, 4, 6, 8, 12),
) -> Explorer:
    """Let the reader change how many sums a thread keeps, and see what bounds it.

    Args:
        run: traces one block of 16 x 16 threads with ``s`` x ``s`` sums each, for
            16 steps; by default chapter 6's blocked product.
        sums: s, to choose from.
    """
    traced = run or _traced

    def draw(each: int) -> Picture:
        report = traced(each)
        side = _THREADS * each
        products = side * side * _STEPS
        clocks = {
            "arithmetic": products / PRODUCTS,
            "shared memory": report.shared_load.wavefronts / WAVEFRONTS,
            "global memory": 32 * report.global_load.sectors / BYTES,
        }
        share = {name: each / clocks["arithmetic"] for name, each in clocks.items()}
        return Picture(
            Steps([Frame("", "")], _picture(each, share), _WIDTH, _HEIGHT, "", ""),
            _words(each, share),
        )

    return Explorer(
        {"sums a side": tuple(sums)},
        draw,
        "Clocks that an SM of an H200 needs for 128 products of a block: arithmetic "
        "takes one, whatever the blocking. What a product takes out of shared memory "
        "and out of global memory, counted by the trace, falls as the square of sums "
        "grows. Caches are left out of account.",
    )


def _traced(each: int) -> TraceReport:
    """Trace one block of the blocked product."""
    side = _THREADS * each
    kernel = compile(BLOCKED, backend="emulator")[f"blocked<{each}>"]
    a, b = torch.randn(side, _STEPS), torch.randn(_STEPS, side)
    c = torch.empty(side, side)
    return kernel.trace[1, (_THREADS, _THREADS)](a, b, c, _STEPS)


def _words(each: int, share: dict[str, float]) -> str:
    worst = max(share, key=lambda name: (share[name], name != "arithmetic"))
    costs = ", ".join(f"{name} {value:.3g}" for name, value in share.items())
    bound = "arithmetic" if share[worst] <= 1.005 else worst
    many, side = f"{each * each} sum{'s' * (each > 1)}", 16 * each
    return (
        f"{many} a thread, {side} x {side} a block, tiles of {2 * 64 * side // 1024} "
        f"KB; clocks for 128 products: {costs}. Bound by {bound}."
    )


def _picture(each: int, share: dict[str, float]) -> str:
    return _square(each) + "".join(
        _bar(row, name, value)
        for row, (name, value) in enumerate(share.items())
    )  # fmt: skip


def _square(each: int) -> str:
    """Draw the block's square of c, one thread's sums in it, and what feeds them."""
    side = max(20.0, _PICTURE * each / 12)
    left, top = 500.0, 76.0
    parts = [
        palette.text(476, 24, "sums of one thread", class_="kw-head"),
        _rectangle(left, top, side, side, 2, "kw-none"),
        _rectangle(left, top - 24, side, 16, 0),
        _rectangle(left - 24, top, 16, side, 1),
        palette.text(left + side + 18, top - 11, "b", class_="kw-row"),
        palette.text(left - 28, top - 11, "a", class_="kw-row"),
    ]
    # Of thread (0, 0): its rows and columns lie 16 apart.
    pitch = side / each
    mark = max(3.0, pitch / 5)
    parts += [
        _rectangle(left + s * pitch, top + r * pitch, mark, mark, 3)
        for r in range(each)
        for s in range(each)
    ]
    return "".join(parts)


def _bar(row: int, name: str, value: float) -> str:
    """Draw the clocks of one resource; what is over one holds the arithmetic up."""
    left, top, unit = 142.0, 62 + row * 72.0, 32.0
    colour = 2 if value <= 1.005 else 1
    shown, label = value * unit, f"{value:.2g}"
    parts = [
        palette.text(left - 12, top + 24, name, class_="kw-row"),
        _rectangle(left, top, shown, 36, colour),
        palette.text(left + shown + 8, top + 24, label, style="text-anchor:start"),
    ]
    if not row:
        at = left + unit
        parts.append(
            f'<line x1="{at}" x2="{at}" y1="44" y2="254" '
            f'stroke="{palette.MUTED}" stroke-dasharray="4 3"/>'
        )
        title = "clocks of an H200's SM for 128 products"
        parts.append(palette.text(0, 24, title, class_="kw-head"))
    return "".join(parts)


def _rectangle(
    x: float, y: float, width: float, height: float, colour: int, kind: str = "kw-used"
) -> str:
    return palette.box(
        x, y, width, height, class_=kind, style=f"--c: {palette.series(colour)}"
    )
