"""A function that n ranks run together: each its part of the arguments and outputs."""

from __future__ import annotations

import socket
from typing import Any

import torch

from autograder.worker.entry import (
    Entry,
    Given,
    Made,
    WrongReturn,
    describe_returned,
    watched,
)
from autograder.worker.group import Said, run_ranks
from autograder.worker.operations import told
from autograder.worker.tensors import DTYPES, from_bytes, to_bytes
from autograder.worker.troubles import Told, Trouble
from autograder.worker.wire import Header
from kernelwright.ranks.messages import Message, Messages


class Ranks(Entry):
    """A function that every rank calls with arguments of its own."""

    def prepare(self) -> str:
        """Ask for a loopback, and for a torch that meets over it."""
        # A fork does not take the threads along that a larger pool would wait for.
        torch.set_num_threads(1)
        if not torch.distributed.is_available() or not (
            torch.distributed.is_gloo_available()
        ):
            return (
                "this torch has no gloo, over which ranks meet. Install the one that "
                "pyproject.toml names."
            )
        try:
            with socket.create_server(("127.0.0.1", 0)) as server:
                socket.create_connection(server.getsockname(), timeout=2).close()
        except OSError as error:
            return (
                f"ranks meet over the loopback 127.0.0.1, and it does not work here "
                f"({error}): this machine gives workers no network of their own. "
                "Allow this user namespaces, or set KERNELWRIGHT_SANDBOX=plain to "
                "check your own work."
            )
        return ""

    def call(self, answer: Any, given: Given, header: Header) -> Made:
        """Run every rank to its end, and stack what they returned."""

        def run(rank: int) -> Said:
            messages = Messages(rank, given.files.__contains__)
            with watched(header) as operations, messages.watching():
                returned = answer(*_own_arguments(rank, given, header))
            if found := messages.findings:
                raise Told(Trouble("fault", f"{found[0]}."))
            tensors, described = describe_returned(returned)
            words = {"returned": described, "operations": told(operations)}
            words["sent"] = {
                "sent bytes": sum(
                    (m.bytes for m in messages.sent), sum(messages.shares)
                ),
                "messages": len(messages.sent) + len(messages.shares),
                "receivers": len({m.peer for m in messages.sent}),
                "messages at once": min(
                    _at_once([m for m in messages.record if m.sends is sends])
                    for sends in (True, False)
                ),
            }
            return words, [to_bytes(tensor) for tensor in tensors]

        said = run_ranks(run, given.files, **header["ranks"])
        pieces = [_as_wanted(rank, *each, header) for rank, each in enumerate(said)]
        stacked = [torch.stack(one) for one in zip(*pieces, strict=True)]
        ran = {name for words, _ in said for name in words["operations"]}
        made, described = describe_returned(stacked)
        most = {
            name: max(words["sent"][name] for words, _ in said)
            for name in said[0][0]["sent"]
        }
        return Made(made, {"operations": sorted(ran), "counted": most}, described)


def _at_once(messages: list[Message]) -> int:
    """Return how many of them were under way at the moment when most were."""
    return max(
        (
            sum(one.began <= begun.began < one.ended for one in messages)
            for begun in messages
        ),
        default=0,
    )


def _own_arguments(rank: int, given: Given, header: Header) -> list[Any]:
    """Take a rank's part of each tensor that is stacked by rank."""
    return [
        value if spec["kind"] != "tensor" or spec.get("replicated") else value[rank]
        for value, spec in zip(given.values, header["arguments"], strict=True)
    ]


def _as_wanted(
    rank: int, words: Header, data: list[bytes], header: Header
) -> list[torch.Tensor]:
    """Return a rank's outputs.

    Raises:
        WrongReturn: they are not what the exercise asks of each rank.
    """
    name, wanted, got = header["name"], header["outputs"], words["returned"]
    if len(got) != len(wanted):
        raise WrongReturn(
            f"{name} returned {len(got)} values on rank {rank}; wanted {len(wanted)} "
            f"tensor{'' if len(wanted) == 1 else 's'}."
        )
    for item, spec in zip(got, wanted, strict=True):
        shape = spec["shape"][1:]
        if (item.get("dtype"), item.get("shape")) != (spec["dtype"], shape):
            what = item["type"]
            if what == "Tensor":
                what = f"{item['dtype']} tensor of shape {tuple(item['shape'])}"
            raise WrongReturn(
                f"{name} returned a {what} on rank {rank}; wanted {spec['name']}, a "
                f"{spec['dtype']} tensor of shape {tuple(shape)}."
            )
    return [
        from_bytes(piece, DTYPES[spec["dtype"]], tuple(spec["shape"][1:]))
        for piece, spec in zip(data, wanted, strict=True)
    ]
