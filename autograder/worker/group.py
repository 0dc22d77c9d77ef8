"""The ranks of an answer: what each has to say crosses as a header and raw bytes."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Mapping
from dataclasses import replace

from autograder.worker.troubles import Told, Trouble, describe
from autograder.worker.wire import Header, pack, parse_header
from kernelwright.ranks.processes import Failed, Stopped, run_group

# What a rank has to say: a header and raw bytes.
Said = tuple[Header, list[bytes]]


def run_ranks(
    run: Callable[[int], Said],
    files: Mapping[str, str],
    *,
    count: int,
    busy_s: float,
    wall_s: float,
) -> list[Said]:
    """Run a function in each rank of a group, and return what each has to say.

    Args:
        run: what a rank does; it is given its number.
        files: the learner's cells, whose lines are told.
        count: how many ranks.
        busy_s: how long each may compute.
        wall_s: how long all of it may take by the clock.

    Raises:
        Told: a rank raised, ended or took too long, or none goes on.
    """

    def tell(error: BaseException) -> bytes:
        return _packed(describe(error, files).to_json(), [])

    def packed(rank: int) -> bytes:
        return _packed(*run(rank))

    limits = {"busy_s": busy_s, "wall_s": wall_s}
    own = files.__contains__
    try:
        return list(map(_heard, run_group(packed, tell, own, count=count, **limits)))
    except Failed as failed:
        trouble = Trouble(**_heard(failed.told)[0])
        words = f"on rank {failed.rank}: {trouble.message}"
        raise Told(replace(trouble, message=words)) from None
    except Stopped as stopped:
        raise Told(_trouble(stopped, files)) from None


def _trouble(stopped: Stopped, files: Mapping[str, str]) -> Trouble:
    where = stopped.where
    kind = "fault" if stopped.kind == "fault" else "timeout"
    text = linecache.getline(where.file, where.line).rstrip("\n")[:200]
    return Trouble(kind, str(stopped), where.line, text, files.get(where.file, ""))


def _packed(words: Header, data: list[bytes]) -> bytes:
    return b"".join(pack(words, data))


def _heard(said: bytes) -> Said:
    end = 4 + int.from_bytes(said[:4], "little")
    words = parse_header(said[4:end])
    data: list[bytes] = []
    for size in words.pop("blobs"):
        data.append(said[end : end + size])
        end += size
    return words, data
