"""One case: lay out the arguments, call the answer, collect the outputs' bytes."""

from __future__ import annotations

from autograder.worker.cells import Namespace
from autograder.worker.entries import ENTRIES
from autograder.worker.entry import Given
from autograder.worker.tensors import Guarded, to_bytes
from autograder.worker.wire import Header


def run_case(
    namespace: Namespace, header: Header, blobs: list[bytearray]
) -> tuple[Header, list[bytes]]:
    """Run the answer on one case and return what it made."""
    answer = namespace.answer(header["name"], header["entry"])
    given = Given.place(header, blobs, namespace.files)
    made, placed = ENTRIES[header["entry"]].call(answer, given, header), given.placed
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
