"""``kw.ranks``: a function that n processes of one ``torch.distributed`` group call."""

from __future__ import annotations

import io
import linecache
import pickle
import sys
import sysconfig
import tempfile
import traceback
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from kernelwright.errors import ArgumentError, RankDeadlock, RankError
from kernelwright.ranks.messages import Message, Messages
from kernelwright.ranks.processes import Failed, Stopped, run_group

_HERE = str(Path(__file__).parent)
_LIBRARIES = tuple(
    {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib")}
)
_MOST_RANKS = 64


class Results(list[Any]):
    """What the ranks returned, in their order.

    Attributes:
        sent: of each rank what it sent, in order: ``Message`` has bytes, receiver,
            where in its memory it lay, when it began and ended.
        received: of each rank what it received, alike.
        collectives: of each rank the group's other operations, by name.
        findings: what a rank did that another run may not survive, as sentences:
            memory written to that a message still needs, a message nobody waits for.
    """

    def __init__(self, returned: list[Any], messages: list[dict[str, Any]]) -> None:
        super().__init__(returned)
        self.sent: list[list[Message]] = [m["sent"] for m in messages]
        self.received: list[list[Message]] = [m["received"] for m in messages]
        self.collectives: list[list[str]] = [m["collectives"] for m in messages]
        by: dict[str, list[int]] = {}
        for rank, each in enumerate(messages):
            for said in each["findings"]:
                by.setdefault(said, []).append(rank)
        self.findings: list[str] = [
            f"rank {', '.join(map(str, found))}: {said}" for said, found in by.items()
        ]

    @property
    def bytes_sent(self) -> list[int]:
        """How many bytes each rank sent."""
        return [sum(message.bytes for message in each) for each in self.sent]


def ranks(
    n: int, function: Callable[..., Any], *arguments: Any, timeout_s: float = 60.0
) -> Results:
    """Call a function in n processes of one ``torch.distributed`` group (gloo).

    Each process is a fork of this one: the function sees every variable as it stands
    here, and what it changes stays its own. ``dist.get_rank()`` says which it is. What
    it prints is shown by rank.

    Args:
        n: how many ranks, 1 to 64.
        function: what each calls; any function, also one of a notebook's cell.
        arguments: what it is given, the same in each rank.
        timeout_s: how long all of it may take, in seconds.

    Returns:
        What the ranks returned, in their order; ``sent`` and ``received`` say what
        they told each other, ``findings`` what was not safe.

    Raises:
        ArgumentError: a number of ranks or a time that cannot be.
        RankError: a rank raised or ended; the message names it and the line.
        RankDeadlock: no rank goes on, or not in time; the message says who waits for
            whom, on which line.
    """
    _check(n, function, timeout_s)
    sys.stdout.flush()
    with tempfile.TemporaryDirectory() as folder:
        printed = [Path(folder) / f"{rank}" for rank in range(n)]

        def run(rank: int) -> bytes:
            with (
                printed[rank].open("w", buffering=1) as file,
                redirect_stdout(file),
                Messages(rank, _own).watching() as messages,
            ):
                returned = function(*arguments)
            return _pickled(returned, messages)

        try:
            said = run_group(
                run, _tell, _own, count=n, busy_s=timeout_s, wall_s=timeout_s
            )
        except Failed as failed:
            told = pickle.loads(failed.told)
            raise RankError(
                f"on rank {failed.rank}: {told['message']}", failed.rank, told["line"]
            ) from None
        except Stopped as stopped:
            kind = RankError if stopped.kind == "fault" else RankDeadlock
            line = stopped.where.line
            text = linecache.getline(stopped.where.file, line).strip()
            shown = f"\n  line {line}: {text}" if text else ""
            raise kind(f"{stopped}{shown}", stopped.rank, line) from None
        finally:
            _show(printed)
    returned, messages = zip(*map(pickle.loads, said), strict=True)
    results = Results(list(returned), list(messages))
    for finding in results.findings:
        print(finding, file=sys.stderr)
    return results


def _check(n: int, function: Callable[..., Any], timeout_s: float) -> None:
    import torch

    if type(n) is not int or not 1 <= n <= _MOST_RANKS:
        raise ArgumentError(
            f"kw.ranks: n is {n!r}; wanted how many ranks, 1 to {_MOST_RANKS}."
        )
    if not callable(function):
        raise ArgumentError(
            f"kw.ranks: {function!r} is no function. Write kw.ranks({n}, function, x), "
            "not kw.ranks(…, function(x))."
        )
    if not timeout_s > 0:
        raise ArgumentError(f"kw.ranks: timeout_s is {timeout_s!r}; wanted seconds.")
    if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
        raise ArgumentError(
            "kw.ranks: this torch has no gloo, over which ranks meet. Install one "
            "that has: on Linux, the one of PyPI."
        )


def _own(file: str) -> bool:
    """Say whether a file is neither a library's nor this package's."""
    if "site-packages" in file or file.startswith("<frozen"):
        return False
    return not file.startswith((_HERE, *_LIBRARIES)) or "ipykernel_" in file


def _pickled(returned: Any, messages: Messages) -> bytes:
    received = [message for message in messages.record if not message.sends]
    told = {
        "sent": messages.sent,
        "received": received,
        "collectives": messages.collectives,
        "findings": messages.findings,
    }
    file = io.BytesIO()
    try:
        pickle.dump((returned, told), file)
    except Exception as error:
        raise TypeError(
            f"the function returned a {type(returned).__name__}, which cannot be "
            f"brought back ({error}). Return tensors, numbers, text, or lists of them."
        ) from None
    return file.getvalue()


def _tell(error: BaseException) -> bytes:
    message, line = f"{type(error).__name__}: {error}", 0
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if _own(frame.filename):
            line = frame.lineno or 0
            message += f"\n  line {line}: {frame.line}"
            break
    return pickle.dumps({"message": message, "line": line})


def _show(printed: list[Path]) -> None:
    for rank, file in enumerate(printed):
        if file.exists():
            for line in file.read_text(errors="replace").splitlines():
                print(f"rank {rank}: {line}")
