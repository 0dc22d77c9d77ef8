"""Figures that trace a kernel for each choice of a parameter.

All choices are traced when the figure is shown, which takes a second: so it stands
alone, in a notebook, a page that was made of one, and the book.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Literal

import torch

from kernelwright.cuda import Kernel, Module, compile
from kernelwright.draw.banks import bank_map
from kernelwright.draw.choices import Choices
from kernelwright.draw.sectors import sector_map
from kernelwright.draw.steps import Frame, Steps
from kernelwright.errors import ArgumentError
from kernelwright.trace.report import TraceReport

STRIDED_COPY = """
__global__ void copy_strided(const float* x, float* y, int n, int stride) {
    int i = (blockIdx.x * blockDim.x + threadIdx.x) * stride;
    if (i < n) {
        y[i] = x[i];
    }
}
"""
TILE = """
template <int PADDING, bool SWIZZLE>
__global__ void transpose_tile(const float* x, float* out) {
    __shared__ float tile[32][32 + PADDING];
    int column = threadIdx.x;
    for (int row = threadIdx.y; row < 32; row += blockDim.y) {
        int place = SWIZZLE ? column ^ row : column;
        tile[row][place] = x[row * 32 + column];
    }
    __syncthreads();
    for (int row = threadIdx.y; row < 32; row += blockDim.y) {
        int place = SWIZZLE ? row ^ column : row;
        out[row * 32 + column] = tile[column][place];
    }
}
"""

Choice = tuple[Any, ...]


@dataclass(frozen=True)
class Picture:
    """What one choice of the parameters looks like.

    Args:
        drawn: a figure of the traced launch; its first frame is shown.
        words: what follows from this choice.
    """

    drawn: Steps
    words: str


@dataclass(repr=False)
class Explorer:
    """A figure with parameters, each behind a slider.

    Args:
        parameters: the name of each, and the values that it can take.
        draw: traces the kernel for a choice and draws it.
        caption: what the figure shows.
    """

    parameters: dict[str, Sequence[Any]]
    draw: Callable[..., Picture]
    caption: str
    _pictures: dict[Choice, Picture] = field(default_factory=dict)

    def picture(self, *choice: Any) -> Picture:
        """Return the figure of a choice, traced when it is first asked for."""
        if choice not in self._pictures:
            self._pictures[choice] = self.draw(*choice)
        return self._pictures[choice]

    def figure(self) -> Steps:
        """Return all choices behind sliders: it stands alone, in a page."""
        choices = list(product(*self.parameters.values()))
        shown = [self.picture(*choice) for choice in choices]
        frames = [
            Frame(
                picture.drawn.base + picture.drawn.frames[0].svg,
                f"{self._named(choice)}: {picture.words}",
            )
            for choice, picture in zip(choices, shown, strict=True)
        ]
        width = max(picture.drawn.width for picture in shown)
        height = max(picture.drawn.height for picture in shown)
        slider = " and ".join(self.parameters)
        form = {
            "wide": all(picture.drawn.wide for picture in shown),
            "narrow": all(picture.drawn.narrow for picture in shown),
        }
        if sum(len(values) > 1 for values in self.parameters.values()) < 2:
            return Steps(frames, "", width, height, slider, self.caption, **form)
        named = [
            (name, [_spelled(value) for value in values])
            for name, values in self.parameters.items()
        ]
        return Choices(
            frames, "", width, height, slider, self.caption, **form, choices=named
        )

    def __str__(self) -> str:
        lines = [
            f"{self._named(choice)}: {self.picture(*choice).words}"
            for choice in product(*self.parameters.values())
        ]
        return "\n".join([self.caption, *lines])

    def __repr__(self) -> str:
        names = ", ".join(self.parameters)
        return f"<Explorer of {names}: print it for its results>"

    def _repr_html_(self) -> str:
        return self.figure()._repr_html_()

    def _named(self, choice: Choice) -> str:
        named = zip(self.parameters, choice, strict=True)
        return ", ".join(f"{name} {_spelled(value)}" for name, value in named)


def explore_stride(
    kernel: Kernel | str | Callable[[int], TraceReport] | None = None,
    strides: Sequence[int] = (1, 2, 3, 4, 8, 16, 32),
    *,
    line: int | None = None,
    op: Literal["", "load", "store"] = "",
) -> Explorer:
    """Let the reader change the stride of a copy and see the sectors that a warp moves.

    Args:
        kernel: one with parameters ``(const float* x, float* out, int n, int stride)``,
            or its source, traced with a warp; or a function of the stride that returns
            a trace's report. By default a strided copy.
        strides: to choose from, in elements.
        line: which line's requests are drawn; by default the costliest's.
        op: ``load`` or ``store``, where the line does both.
    """
    run: Any = kernel if _is_function(kernel) else _strided(_kernel_of(kernel))

    def draw(stride: int) -> Picture:
        report: TraceReport = run(stride)
        drawn = sector_map(report, line, op=op, limit=1)
        total = report.global_store if op == "store" else report.global_load
        moved = total.sectors * 32
        used = total.bytes / moved if moved else 0
        return Picture(
            drawn,
            f"{total.sectors_per_request:.3g} sectors per request, "
            f"{100 * min(1, used):.3g}% of the bytes that move are used",
        )

    return Explorer(
        {"stride": tuple(strides)},
        draw,
        "The wider the stride, the more sectors a warp's request touches, and the less "
        "of each is used: blue words were asked for, orange ones only come along.",
    )


def explore_tile(
    tile: Module | str | Callable[[int, bool], TraceReport] | None = None,
    paddings: Sequence[int] = (0, 1, 2, 4),
    swizzles: Sequence[bool] = (False, True),
    *,
    kernel: str = "",
) -> Explorer:
    """Let the reader pad or swizzle a tile and see which banks a warp meets.

    Args:
        tile: a source, or the module, with a kernel that is a template of
            ``<int PADDING, bool SWIZZLE>`` and takes ``(const float* x, float* out)``,
            32 x 32 elements, 32 x 8 threads; or a function of padding and swizzle that
            returns a trace's report. By default a transpose of such a tile.
        paddings: floats at the end of a row, to choose from.
        swizzles: whether the columns are swizzled, to choose from.
        kernel: the template's name, where the module has several.
    """
    run: Any = tile if _is_function(tile) else _tiled(_module_of(tile), kernel)

    def draw(padding: int, swizzle: bool) -> Picture:
        report: TraceReport = run(padding, swizzle)
        drawn = bank_map(report, limit=1)
        store, load = report.shared_store, report.shared_load
        return Picture(
            drawn,
            f"a store takes {_waves(store.wavefronts_per_request)}, a load "
            f"{_waves(load.wavefronts_per_request)}; the costlier one is drawn",
        )

    return Explorer(
        {"padding": tuple(paddings), "swizzle": tuple(swizzles)},
        draw,
        "Either one more column or a swizzle spreads a column of the tile over the 32 "
        "banks; both together, or another padding, may bring conflicts back. A row is "
        "a wavefront; red lanes had to wait for their bank.",
    )


def _is_function(given: object) -> bool:
    return callable(given) and not isinstance(given, (Kernel, Module))


def _kernel_of(given: Any) -> Kernel:
    if isinstance(given, Kernel):
        return given
    module = compile(given or STRIDED_COPY, backend="emulator")
    return module[_only(module.kernels, "kernel")]


def _module_of(given: Any) -> Module:
    if isinstance(given, Module):
        return given
    return compile(given or TILE, backend="emulator")


def _only(names: Sequence[str], what: str) -> str:
    if len(names) != 1:
        raise ArgumentError(
            f"the source has {len(names)} {what}s ({', '.join(names) or 'none'}); "
            "wanted one."
        )
    return names[0]


def _strided(kernel: Kernel) -> Callable[[int], TraceReport]:
    def run(stride: int) -> TraceReport:
        # A little longer than a warp needs: a kernel with an offset shows its own.
        x = torch.arange(float(32 * stride + 32))
        return kernel.trace[1, 32](x, torch.empty_like(x), x.numel(), stride)

    return run


def _tiled(module: Module, kernel: str) -> Callable[[int, bool], TraceReport]:
    name = kernel or _only(module.templates, "kernel template")

    def run(padding: int, swizzle: bool) -> TraceReport:
        instance = module[f"{name}<{padding}, {str(swizzle).lower()}>"]
        x = torch.arange(1024.0)
        return instance.trace[1, (32, 8)](x, torch.empty_like(x))

    return run


def _waves(number: float) -> str:
    return f"{number:.3g} wavefront{'' if number == 1 else 's'}"


def _spelled(value: object) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
