"""The far side of the speed gate: call what the learner wrote, as often as told.

Whatever is said here of time is for display. The supervisor's clock runs from its
request until the outputs were sealed by another process, which owns the inputs (and
a kernel's outputs) and reads what a function returned through CUDA's own handles.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import torch

from autograder.worker import device_memory
from autograder.worker.cells import Namespace
from autograder.worker.places import Layout, read_scalar
from autograder.worker.tensors import DTYPES, dtype_name
from autograder.worker.wire import Header

# Bound before any of the learner's code runs: a patch of torch's is not called.
_synchronize = torch.cuda.synchronize


class NotShared(Exception):
    """What a function returned cannot be read by another process."""


class Timed:
    """The calls of a turn, ready to be made."""

    def __init__(self, header: Header) -> None:
        """Open the memory that the inputs lie in.

        Args:
            header: ``handle``, ``layout``, ``calls``, ``outputs`` (of a function),
                ``launch`` (of a kernel).
        """
        # What finds mistakes in the correctness gate costs time in this one.
        torch.use_deterministic_algorithms(False)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        torch.cuda.init()
        address = device_memory.open_handle(bytes.fromhex(header["handle"]))
        self._layout = Layout.from_json(header["layout"])
        self._calls = int(header["calls"])
        size = self._layout.stride * self._calls
        self._base = address
        self._memory = device_memory.as_bytes(address, size)
        self._launch = header.get("launch")
        self._returned: list[tuple[torch.Tensor, ...]] = []
        self._segments: dict[bytes, int] = {}
        self._wanted = [
            (tuple(spec["shape"]), DTYPES[spec["dtype"]])
            for spec in header.get("outputs", [])
        ]
        self._sets = [self._views(call) for call in range(self._calls)]
        self._arguments: list[list[Any]] = []
        self._work: Callable[..., Any] = _nothing
        self._start, self._stop = _event(), _event()

    def choose(self, entry: Any) -> None:
        """Take the learner's kernel or function as the work."""
        if self._launch is None:
            self._work = entry
            return
        grid, block = tuple(self._launch["grid"]), tuple(self._launch["block"])
        self._work = entry[grid, block, self._launch["shared"]]

    def load(self, scalars: list[dict[str, int | str]]) -> None:
        """Lay the arguments of the next turn ready; the inputs come later."""
        self._returned = []
        self._arguments = []
        for views, own in zip(self._sets, scalars, strict=True):
            values = {name: read_scalar(value) for name, value in own.items()}
            every = {**values, **views}
            self._arguments.append(
                [every[name] for name in self._layout.order if name in every]
            )

    def turn(self) -> Header:
        """Make every call, wait for the device, and say where the results are."""
        results: list[Any] = []
        work, sets = self._work, self._arguments
        events_ms = self._timed(lambda: results.extend(work(*own) for own in sets))
        if self._launch is None:
            self._returned = [_as_tuple(result) for result in results]
        return {"events_ms": events_ms, **self._described()}

    def rehearse(self) -> Header:
        """Do as a turn does, with copies of our own for work.

        It is asked for before any of the learner's code is here, while what is said
        of time can be believed: what the clock shows beyond it is the turn's own
        overhead.
        """
        if self._launch is None and not self._returned:
            self._returned = [self._made_up() for _ in range(self._calls)]
            _synchronize()
        events_ms = self._timed(self._copies)
        return {"events_ms": events_ms, **self._described()}

    def _timed(self, work: Callable[[], None]) -> float:
        """Run work to its end; return its milliseconds by the device's events."""
        was_on = gc.isenabled()
        gc.disable()
        try:
            self._start.record()
            work()
            self._stop.record()
            _synchronize()
        finally:
            if was_on:
                gc.enable()
        return float(self._start.elapsed_time(self._stop))

    def _copies(self) -> None:
        """Copy half of every set into its other half."""
        stride, half = self._layout.stride, self._layout.stride // 2
        for call in range(self._calls):
            own = self._memory[call * stride : call * stride + 2 * half]
            own[half:].copy_(own[:half])

    def _views(self, call: int) -> dict[str, torch.Tensor]:
        return {
            place.name: self._layout.view(self._memory, call, place)
            for place in self._layout.places
        }

    def _made_up(self) -> tuple[torch.Tensor, ...]:
        return tuple(
            torch.zeros(shape, dtype=dtype, device="cuda")
            for shape, dtype in self._wanted
        )

    def _described(self) -> Header:
        """Say where each call's outputs lie; a segment's handle is told once."""
        if self._launch is not None:
            return {}
        fresh: list[str] = []
        form = _form(self._returned[0]) if self._returned else []
        for row in self._returned:
            if _form(row) != form:
                raise NotShared("what the function returns changes from call to call")
        rows = [[self._spot(tensor, fresh) for tensor in row] for row in self._returned]
        told = [
            {"dtype": dtype_name(dtype), "shape": list(shape), "strides": list(strides)}
            for dtype, shape, strides in form
        ]
        return {"segments": fresh, "rows": rows, "form": told}

    def _spot(self, tensor: torch.Tensor, fresh: list[str]) -> list[int]:
        """Return segment and offset of a tensor's first element."""
        pointer = tensor.data_ptr()
        if pointer == 0:
            return [0, 0]
        base, _ = device_memory.extent(pointer)
        if base == self._base:
            raise NotShared(
                "the function returned one of its inputs; wanted a new tensor"
            )
        # Asked each time: memory that was freed and taken again has a new handle.
        handle = device_memory.export(base)
        if handle not in self._segments:
            self._segments[handle] = len(self._segments)
            fresh.append(handle.hex())
        return [self._segments[handle], pointer - base]


_timed: Timed | None = None


def timed(namespace: Namespace, header: Header) -> Header:
    """Answer one request of the speed gate."""
    global _timed
    what = header["what"]
    if what == "attach":
        _timed = Timed(header)
        return {"ok": True}
    assert _timed is not None
    if what == "choose":
        _timed.choose(namespace.answer(header["name"], header["entry"]))
        return {"ok": True}
    if what == "load":
        _timed.load(header["scalars"])
        return {"ok": True}
    answer = _timed.turn() if what == "turn" else _timed.rehearse()
    return {"ok": True, **answer}


Form = list[tuple[torch.dtype, tuple[int, ...], tuple[int, ...]]]


def _form(row: tuple[torch.Tensor, ...]) -> Form:
    """Return what must be alike for every call."""
    return [(one.dtype, tuple(one.shape), tuple(one.stride())) for one in row]


def _nothing(*arguments: Any) -> None:
    """Stand in until the learner's code is there."""


def _as_tuple(value: Any) -> tuple[torch.Tensor, ...]:
    """Return what a function returned as a tuple of tensors."""
    items = tuple(value) if isinstance(value, tuple | list) else (value,)
    for item in items:
        if type(item) is not torch.Tensor or not item.is_cuda:
            raise NotShared(
                f"the function returned a {type(item).__name__} at the timed size; "
                "wanted a tensor on the GPU"
            )
    return items


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)
