"""Whether a CUDA graph is captured of what a model does."""

from __future__ import annotations

from collections.abc import Mapping


def chosen(caller: str, graph: bool | None, hindrances: Mapping[str, object]) -> bool:
    """Say whether a graph is captured: as asked, or wherever nothing hinders.

    Args:
        caller: whose error it is.
        graph: what was asked; None leaves it to the hindrances.
        hindrances: in words, each with whether it is there.

    Raises:
        ValueError: a graph was asked for, and something hinders; the first is named.
    """
    why = [words for words, there in hindrances.items() if there]
    if graph and why:
        raise ValueError(f"{caller}: no graph can be captured: {why[0]}.")
    return not why if graph is None else graph
