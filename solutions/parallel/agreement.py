"""Errors that every rank raises together, with the name of what differs.

A rank that raises alone leaves the others waiting for what it would have sent. So all
say first what they have, and all see the same list.
"""

from __future__ import annotations

from collections.abc import Sequence

from solutions.parallel._collectives import Group, told_by_all


def agree(what: str, own: str, mend: str, group: Group = None) -> None:
    """Raise on every rank, if what the ranks say of themselves is not the same.

    Args:
        what: that is compared, such as ``the shapes of q``.
        own: what this rank has.
        mend: how to make them agree.
        group: the ranks.

    Raises:
        ValueError: they differ; it lists each rank's.
    """
    said = told_by_all(own, group)
    if len(set(said)) > 1:
        listed = "; ".join(f"rank {rank}: {one}" for rank, one in enumerate(said))
        raise ValueError(f"{what} differ among ranks ({listed}). {mend}")


def agree_on_each(
    what: str,
    names: Sequence[str],
    described: Sequence[str],
    mend: str,
    group: Group = None,
) -> None:
    """Raise on every rank, naming the first of many things that is not the same.

    Raises:
        ValueError: one differs, or is on some ranks only.
    """
    own = [f"{name} {one}" for name, one in zip(names, described, strict=True)]
    said = [one.split("\n") for one in told_by_all("\n".join(own), group)]
    longest = max(map(len, said))
    for at in range(longest):
        there = [one[at] if at < len(one) else "none more" for one in said]
        if len(set(there)) > 1:
            listed = "; ".join(f"rank {rank}: {one}" for rank, one in enumerate(there))
            raise ValueError(f"{what} differ among ranks ({listed}). {mend}")


def share_of(size: int, world: int, what: str) -> int:
    """Return the part of a size that each rank has.

    Raises:
        ValueError: the ranks do not divide it. All ranks were given the same sizes, so
            all raise.
    """
    if size % world:
        raise ValueError(
            f"{what} is {size}, which {world} ranks do not divide; wanted a "
            f"multiple, such as {size + world - size % world}, or fewer ranks."
        )
    return size // world
