"""One case: lay out the arguments, launch or call, collect the outputs' bytes."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from math import prod
from typing import Any

import torch

from autograder.worker.launches import counted
from autograder.worker.operations import operations_seen, told
from autograder.worker.origins import Origins
from autograder.worker.tensors import Guarded, dtype_name, to_bytes
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
    entry: Any, header: Header, blobs: list[bytearray]
) -> tuple[Header, list[bytes]]:
    """Run an answer on one case and return what it made."""
    values, placed = place_arguments(header, blobs)
    wanted = {spec["name"]: spec for spec in header["outputs"]}
    if header["entry"] == "kernel":
        launch = header["launch"]
        entry[tuple(launch["grid"]), tuple(launch["block"]), launch["shared"]](*values)
        _finish(header["device"])
        made = [g.tensor for g in placed if g.name in wanted]
        described: list[Header] = []
        launches: Header = {}
    else:
        sizes = (prod(spec["shape"]) for spec in wanted.values())
        origins = Origins((g.tensor for g in placed), sum(sizes))
        with counted(origins) as seen, _watched(header) as operations:
            returned = entry(*values)
        _finish(header["device"])
        made, described = _returned(returned)
        if seen.count:
            origins.returned(made)
        launches = {"launches": seen.count, "origins": origins.trouble}
        launches |= {"operations": told(operations), "kernels": seen.kernels}
    data: list[bytes] = []
    if header["entry"] == "kernel" or _as_wanted(described, header):
        data = [to_bytes(tensor.cpu()) for tensor in made]
    reply: Header = {
        "ok": True,
        "returned": described,
        **launches,
        "trespass": {g.name: sides for g in placed if (sides := g.trespass())},
        "outside": {g.name: g.first_outside() for g in placed if g.trespass()},
        "changed": [
            g.name
            for g, spec in zip(placed, _tensors(header), strict=True)
            if g.name not in wanted and _changed(g, blobs[spec["blob"]])
        ],
    }
    return reply, data


def _watched(header: Header) -> AbstractContextManager[set[str]]:
    """Watch torch's operations where the exercise names some that it does without."""
    nothing: set[str] = set()
    return operations_seen() if header.get("operations") else nullcontext(nothing)


def _finish(device: str) -> None:
    if device != "cpu":
        # A kernel runs behind the launch: its faults must show here.
        torch.cuda.synchronize()


def _tensors(header: Header) -> list[Header]:
    return [spec for spec in header["arguments"] if spec["kind"] == "tensor"]


def _returned(value: Any) -> tuple[list[torch.Tensor], list[Header]]:
    """List what was returned, and describe each item without trusting it."""
    items = list(value) if isinstance(value, (tuple, list)) else [value]
    described: list[Header] = []
    tensors: list[torch.Tensor] = []
    for item in items[:16]:
        if type(item) is torch.Tensor and item.layout is torch.strided:
            described.append(
                {
                    "type": "Tensor",
                    "dtype": dtype_name(item.dtype),
                    "shape": list(item.shape),
                    "device": item.device.type,
                }
            )
            tensors.append(item.detach().resolve_conj().resolve_neg())
        else:
            described.append({"type": _kind(item)})
    return tensors, described


def _kind(item: Any) -> str:
    """Name what is no plain tensor: its type, or what sort of tensor it is."""
    if type(item) is torch.Tensor:
        return f"{str(item.layout).removeprefix('torch.')} Tensor"
    return type(item).__name__[:100]


def _as_wanted(described: list[Header], header: Header) -> bool:
    """Say whether sending the bytes makes sense; the supervisor asks again."""
    got = [(d.get("dtype"), d.get("shape"), d.get("device")) for d in described]
    device = header["device"]
    return got == [(w["dtype"], w["shape"], device) for w in header["outputs"]]


def _changed(guarded: Guarded, sent: bytearray) -> bool:
    end = len(guarded.buffer) - (len(guarded.buffer) - guarded.inner) // 2
    now = guarded.buffer[end - guarded.inner : end].cpu()
    return bool(guarded.inner) and now.numpy().tobytes() != bytes(sent)
