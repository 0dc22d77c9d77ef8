"""One case: lay out the arguments, call the answer, collect the outputs' bytes."""

from __future__ import annotations

from typing import Any

from autograder.worker.entries import ENTRIES
from autograder.worker.tensors import Guarded, to_bytes
from autograder.worker.wire import Header


class WrongReturn(Exception):
    """A function returned something that is not what the exercise asks for."""


def place_arguments(
    header: Header, blobs: list[bytearray]
) -> tuple[list[Any], list[Guarded]]:
    """Build the arguments in order; tensors stand between guard zones."""
    values: list[Any] = []
    placed: list[Guarded] = []
    for spec in header["arguments"]:
        if spec["kind"] == "int":
            values.append(int(spec["value"]))
        elif spec["kind"] == "float":
            values.append(float.fromhex(spec["value"]))
        else:
            guarded = Guarded.place(spec, blobs[spec["blob"]], header["device"])
            placed.append(guarded)
            values.append(guarded.tensor)
    return values, placed


def run_case(
    answer: Any, header: Header, blobs: list[bytearray]
) -> tuple[Header, list[bytes]]:
    """Run an answer on one case and return what it made."""
    values, placed = place_arguments(header, blobs)
    made = ENTRIES[header["entry"]].call(answer, values, placed, header)
    wanted = {spec["name"] for spec in header["outputs"]}
    data: list[bytes] = []
    if made.described is None or _as_wanted(made.described, header):
        data = [to_bytes(tensor.cpu()) for tensor in made.tensors]
    reply: Header = {
        "ok": True,
        "returned": made.described or [],
        **made.facts,
        "trespass": {g.name: sides for g in placed if (sides := g.trespass())},
        "outside": {g.name: g.first_outside() for g in placed if g.trespass()},
        "changed": [
            g.name
            for g, spec in zip(placed, _tensors(header), strict=True)
            if g.name not in wanted and _changed(g, blobs[spec["blob"]])
        ],
    }
    return reply, data


def _tensors(header: Header) -> list[Header]:
    return [spec for spec in header["arguments"] if spec["kind"] == "tensor"]


def _as_wanted(described: list[Header], header: Header) -> bool:
    """Say whether sending the bytes makes sense; the supervisor asks again."""
    got = [(d.get("dtype"), d.get("shape"), d.get("device")) for d in described]
    device = header["device"]
    return got == [(w["dtype"], w["shape"], device) for w in header["outputs"]]


def _changed(guarded: Guarded, sent: bytearray) -> bool:
    end = len(guarded.buffer) - (len(guarded.buffer) - guarded.inner) // 2
    now = guarded.buffer[end - guarded.inner : end].cpu()
    return bool(guarded.inner) and now.numpy().tobytes() != bytes(sent)
