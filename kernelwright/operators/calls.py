"""Record a function's call once, and repeat it."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any, ParamSpec, TypeVar, overload

import torch

from kernelwright.cuda.watch import Varying
from kernelwright.operators.differentiable import record_differentiable
from kernelwright.operators.fingerprint import (
    PLAIN,
    any_wants_gradient,
    fingerprint,
    may_vary,
)
from kernelwright.operators.onlooker import READ, Onlooker
from kernelwright.operators.program import Replay, written
from kernelwright.operators.recorder import Recorder
from kernelwright.operators.target import target_of

P = ParamSpec("P")
R = TypeVar("R")

MOST = 4096
"""Recordings of one function that are kept; then the oldest goes."""


@overload
def recorded(function: Callable[P, R], /) -> Callable[P, R]: ...


@overload
def recorded(
    *, varying: tuple[str, ...] = ()
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def recorded(
    function: Callable[..., Any] | None = None, /, *, varying: tuple[str, ...] = ()
) -> Callable[..., Any]:
    """Make a function that launches kernels cheap to call.

    What it decides may depend on its tensors' shapes, dtypes, strides, devices and on
    whether they begin at a multiple of 16 bytes, on its other arguments, on the grad
    mode and on autocast: on no tensor's value, and on nothing else. Then a call is
    recorded when it comes the second time, and repeated afterwards: memory is
    allocated, torch's operations are done and kernels are launched as they were, and
    its checks are not made again.

    A call that cannot be repeated (one that reads a value, or that runs where torch
    traces) is made in full every time.

    Args:
        function: takes tensors and plain values, and returns tensors that it made.
        varying: numbers that only kernels use: they may differ from call to call.

    Cost: a call of a known kind 3 us and 1 us a tensor, beside its launches; the
    second of a kind about 0.5 ms more than the function itself.
    """
    if function is None:
        return lambda found: recorded_calls(found, varying)
    return recorded_calls(function)


def recorded_calls(
    function: Callable[..., Any], varying: tuple[str, ...] = ()
) -> Callable[..., Any]:
    """Wrap a function; see ``recorded``."""
    kept: dict[tuple[Hashable, ...], Replay] = {}
    places = _places(function, varying)
    tracing = torch.compiler.is_dynamo_compiling
    lock = threading.Lock()

    def in_full(arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        return function(*arguments, **named)

    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        if tracing():
            return function(*arguments, **named)
        key = fingerprint(arguments, named, places)
        if key is None:
            return function(*arguments, **named)
        try:
            replay = kept.get(key)
        except TypeError:  # an argument that cannot be looked up
            return function(*arguments, **named)
        if replay is None:
            with lock:
                while len(kept) >= MOST:
                    del kept[next(iter(kept))]
                kept[key] = _seen_once
            return function(*arguments, **named)
        if replay is _seen_once:
            found, replay = record(function, arguments, named, places)
            with lock:
                kept[key] = replay or in_full
            return found
        return replay(arguments, named)

    def recording_of(arguments: tuple[Any, ...]) -> Replay | None:
        key = fingerprint(arguments, {}, places)
        found = None if key is None else kept.get(key)
        return None if found is _seen_once else found

    call.recordings = kept  # type: ignore[attr-defined]
    call.recording_of = recording_of  # type: ignore[attr-defined]
    return call


def _seen_once(arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Stand for a call that came once: only what comes again is worth recording."""
    raise AssertionError("it is recorded before it is repeated")


def record(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    named: dict[str, Any],
    places: frozenset[int | str],
) -> tuple[Any, Replay | None]:
    """Call a function and watch it: return what it gave, and how to repeat it."""
    inputs: dict[str, torch.Tensor] = {}
    fetched: dict[str, str] = {}
    originals: list[tuple[torch.Tensor, torch.Tensor]] = []
    wants = any_wants_gradient((*arguments, *named.values()))

    def seen(value: Any, place: int | str, source: str) -> Any:
        if place in places and may_vary(value):
            return Varying(value, place)
        if value.__class__ in PLAIN:
            if any(value is other for other in inputs.values()):
                # Twice the same tensor today; the next time it may be two.
                stand_in = value.view_as(value) if wants else value.detach()
                originals.append((stand_in, value))
                value = stand_in
            name = f"x{len(inputs)}"
            inputs[name], fetched[name] = value, f"{source}[{place!r}]"
        return value

    given = tuple(seen(value, place, "a") for place, value in enumerate(arguments))
    given_named = {key: seen(value, key, "n") for key, value in named.items()}
    device = next((t.device for t in inputs.values()), None)
    if device is None:
        return function(*arguments, **named), None
    if wants:
        found, replay = record_differentiable(function, given, given_named)
    else:
        recorder, onlooker = Recorder(inputs), Onlooker(only=READ)
        with onlooker, recorder.watching():
            found = function(*given, **given_named)
        if onlooker.seen:
            recorder.refuse(f"{onlooker.seen[0]} reads a value")
        replay = written(recorder, fetched, found, target_of(device), function)
    given_back = (value for stand_in, value in originals if found is stand_in)
    return next(given_back, found), replay


def _places(
    function: Callable[..., Any], names: tuple[str, ...]
) -> frozenset[int | str]:
    """Return where some parameters may stand in a call: their positions and names."""
    order = list(inspect.signature(function).parameters)
    return frozenset([*names, *(order.index(name) for name in names)])
