"""The table that a profiler ends in: for a notebook, a terminal, and a program."""

from __future__ import annotations

import html
from dataclasses import dataclass

from kernelwright.measure.units import four_digits, show_bytes


@dataclass
class Row:
    """All runs of one region.

    Args:
        path: its name behind its parents', with slashes.
        depth: how many parents.
        calls: how often it ran.
        total_ms: time of all runs.
        own_ms: what of it no inner region accounts for.
        host_ms: how long the CPU was inside; on a GPU often much less.
        peak_bytes: the most memory that a run used beyond what was in use before.
    """

    path: str
    depth: int
    calls: int = 0
    total_ms: float = 0.0
    own_ms: float = 0.0
    host_ms: float = 0.0
    peak_bytes: int = 0

    @property
    def name(self) -> str:
        """The region's own name."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, repr=False)
class Summary:
    """Regions in order, each behind its parent.

    Args:
        rows: one for each path.
        place: what ran them, and how time was told.
        on_gpu: whether total is the device's time, and the CPU's stands beside it.
        with_memory: whether peaks were recorded.
    """

    rows: list[Row]
    place: str
    on_gpu: bool
    with_memory: bool

    def __getitem__(self, path: str) -> Row:
        """Return the row of a path such as ``step/forward``."""
        for row in self.rows:
            if row.path == path:
                return row
        known = ", ".join(row.path for row in self.rows) or "none"
        raise KeyError(f"no region {path!r}; there are: {known}")

    @property
    def total_ms(self) -> float:
        """Time of the outermost regions together."""
        return sum(row.total_ms for row in self.rows if row.depth == 0)

    def table(self) -> list[list[str]]:
        """Return headings and cells as text."""
        head = ["region", "calls", "total ms", "own ms", "share"]
        head += ["CPU ms"] * self.on_gpu + ["peak"] * self.with_memory
        lines = [head]
        whole = self.total_ms
        for row in self.rows:
            share = f"{row.own_ms / whole:.0%}" if whole else "–"
            line = [
                "  " * row.depth + row.name,
                f"{row.calls:,}",
                four_digits(row.total_ms),
                four_digits(row.own_ms),
                share,
            ]
            line += [four_digits(row.host_ms)] * self.on_gpu
            line += [show_bytes(row.peak_bytes)] * self.with_memory
            lines.append(line)
        return lines

    def __repr__(self) -> str:
        lines = self.table()
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        shown = []
        for line in lines:
            first, *others = (
                cell.ljust(w) if i == 0 else cell.rjust(w)
                for i, (cell, w) in enumerate(zip(line, widths, strict=True))
            )
            shown.append("  ".join([first, *others]))
        return "\n".join([*shown, f"share: own time of all; {self.place}"])

    def _repr_html_(self) -> str:
        head, *lines = self.table()
        cells = "".join(
            f'<th scope="col" style="padding:.1em .6em;text-align:'
            f'{"right" if i else "left"}">{html.escape(name)}</th>'
            for i, name in enumerate(head)
        )
        body = "".join(_line(line, row) for line, row in zip(lines, self.rows))  # noqa: B905
        note = html.escape(f"share: own time of all; {self.place}")
        return (
            f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"
            f"<p><small>{note}</small></p>"
        )


def _line(line: list[str], row: Row) -> str:
    name = (
        f'<th scope="row" style="text-align:left;padding-left:{0.6 + row.depth:g}em">'
        f"{html.escape(row.name)}</th>"
    )
    cells = "".join(
        f'<td style="padding:.1em .6em;text-align:right">{html.escape(cell)}</td>'
        for cell in line[1:]
    )
    return f"<tr>{name}{cells}</tr>"
