"""A recording written down as a Python function: a line a step, nothing decided.

It looks like this:

    def replay(a, n):
        if current() != 0: return elsewhere(a, n)
        if thread.device != 0: enter(0)
        x0 = a[0]
        stream = stream_of(0)
        t1 = empty(*k0)
        room = take()
        base = room.base
        k1(room.words, 0, x0.data_ptr(), t1.data_ptr())
        try:
            launch(*k2, stream, base + 64, 0)
        except Exception as error: return failed(error, a, n)
        give(room)
        return t1

``a`` and ``n`` are the call's arguments, and ``k0`` and on what no literal spells.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType
from typing import Any

import torch
from torch.utils._pytree import tree_iter

from kernelwright.operators.memory import (
    Address,
    Constant,
    Layout,
    Number,
    Parameter,
    Room,
    TensorMap,
)
from kernelwright.operators.recorder import (
    Allocate,
    Compute,
    Launch,
    Name,
    Recorder,
    Step,
    Zeros,
)
from kernelwright.operators.target import Target

Replay = Callable[[tuple[Any, ...], dict[str, Any]], Any]
LARGE = 2**20
"""Bytes of a tensor from which on it is made when it is needed, and let go after."""


def written(
    recorder: Recorder,
    inputs: dict[str, str],
    result: Any,
    target: Target,
    instead: Callable[..., Any],
) -> Replay | None:
    """Turn a recording into a function; ``None`` where it cannot be repeated.

    Args:
        recorder: what has watched the call.
        inputs: by a tensor's name, the expression that fetches it: ``a[0]``.
        result: what the call returned.
        target: where the kernels run.
        instead: the function that was recorded, for a launch that fails.
    """
    tensors = _tensors(result)
    names = [recorder.name_of(t) for t in tensors]
    if None in names:
        recorder.refuse("it returns a tensor that was not seen made")
    elif any(recorder.is_blank(name) for name in names if name):
        recorder.refuse("it returns what nothing seen has written")
    if any(
        t.requires_grad and n not in inputs for t, n in zip(tensors, names, strict=True)
    ):
        recorder.refuse("it returns a tensor with a gradient")
    if not _can_be_given_back(result):
        recorder.refuse(f"it returns a {type(result).__name__}")
    writer = _Writer(inputs, target)
    if recorder.refusal is None:
        writer.write(recorder, [name for name in names if name])
        writer.give_back(recorder, result)
    return None if recorder.refusal else writer.function(instead)


@lru_cache(512)
def compiled(text: str) -> CodeType:
    """Compile a text once: calls that differ in sizes alone have the same."""
    return compile(text, "<recorded call>", "exec")


def _can_be_given_back(value: Any) -> bool:
    """Say whether a result is tensors, constants, or tuples and lists of them."""
    if type(value) in (tuple, list):
        return all(map(_can_be_given_back, value))
    plain = (type(None), bool, int, float, str, torch.dtype, torch.device)
    return isinstance(value, torch.Tensor) or type(value) in plain


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_iter(value) if isinstance(leaf, torch.Tensor)]


@dataclass
class _Writer:
    """Collects the lines, and what they speak of."""

    inputs: dict[str, str]
    target: Target
    lines: list[str] = field(default_factory=list)
    space: dict[str, Any] = field(default_factory=dict)
    layout: Layout = field(default_factory=Layout)

    def write(self, recorder: Recorder, returned: list[str]) -> None:
        steps = _in_final_form(_used(recorder.steps, returned), recorder, returned)
        computed = [step for step in steps if isinstance(step, Compute)]
        if torch._C._is_any_autocast_enabled() and any(not c.view for c in computed):
            # It would be cast a second time: it was seen after autocast.
            recorder.refuse("torch computes under autocast")
        fetched = _names(steps) | set(returned)
        for name, expression in self.inputs.items():
            if name in fetched:
                self.lines.append(f"{name} = {expression}")
        launches = [step for step in steps if isinstance(step, Launch)]
        if launches:
            self.lines.append(f"stream = stream_of({self.target.device})")
        # Small memory first: then one write may serve many launches.
        for step in steps:
            if isinstance(step, (Allocate, Zeros)) and not _is_large(step):
                self._make(step)
        if launches:
            self.lines += ["room = take()", "base = room.base"]
        groups = list(_groups(steps))
        roots = (recorder.root_of(name).name for name in returned)
        let_go = _let_go(groups, {*returned, *roots, *self.inputs})
        for group, names in zip(groups, let_go, strict=True):
            if isinstance(group[0], Launch):
                self._launch([step for step in group if isinstance(step, Launch)])
            elif isinstance(group[0], Compute):
                self._compute(group[0])
            elif isinstance(group[0], Allocate):
                self._make(group[0])
            if names:
                self.lines.append(f"del {', '.join(names)}")
        if launches:
            self.lines.append("give(room)")

    def give_back(self, recorder: Recorder, result: Any) -> None:
        """Write the return."""
        self.lines.append(f"return {self._spelled(result, recorder)}")

    def function(self, instead: Callable[..., Any]) -> Replay:
        """Compile the lines."""
        self.layout.finish()
        pool: list[Room] = []
        layout = self.layout

        def take() -> Room:
            try:
                return pool.pop()
            except IndexError:
                return Room(layout)

        head = self.target.head()
        text = "\n    ".join(["def replay(a, n):", *head, *self.lines])
        space: dict[str, Any] = {}
        space |= self.target.names(lambda a, n: space["replay"](a, n), instead)
        space |= {**self.space, "take": take, "give": pool.append}
        exec(compiled(text), space)
        replay: Replay = space["replay"]
        replay.text = text  # type: ignore[attr-defined]
        return replay

    def _say(self, value: Any) -> str:
        """Return a name for a value that no literal spells."""
        if value is None or type(value) in (bool, int, str):
            return repr(value)
        name = f"k{len(self.space)}"
        self.space[name] = value
        return name

    def _spelled(self, value: Any, recorder: Recorder | None = None) -> str:
        if isinstance(value, Name):
            return value.name
        if isinstance(value, torch.Tensor) and recorder is not None:
            return str(recorder.name_of(value))
        if type(value) in (tuple, list):
            inside = ", ".join(self._spelled(one, recorder) for one in value)
            comma = "," if len(value) == 1 else ""
            return f"({inside}{comma})" if type(value) is tuple else f"[{inside}]"
        return self._say(value)

    def _make(self, step: Allocate | Zeros) -> None:
        if isinstance(step, Zeros):
            made = f"zeros({self.target.device}, stream, {step.count})"
        else:
            sizes = (step.size, step.stride, step.dtype)
            made = f"empty(*{self._say(sizes)})"
        self.lines.append(f"{step.name} = {made}")

    def _compute(self, step: Compute) -> None:
        named = [f"{key}={self._spelled(v)}" for key, v in step.named.items()]
        inside = ", ".join([*map(self._spelled, step.arguments), *named])
        names = ", ".join(name or "_" for name in step.names)
        comma = "," if step.many and len(step.names) == 1 else ""
        made = f"{names}{comma} = " if step.names else ""
        self.lines.append(f"{made}{self._say(step.function)}({inside})")

    def _launch(self, launches: Sequence[Launch]) -> None:
        words = _Words(self.layout)
        calls = []
        # All words first: they lie side by side.
        for parameter in (p for launch in launches for p in launch.parameters):
            if isinstance(parameter, TensorMap):
                words.add_map(parameter)
            else:
                words.add(parameter)
        for launch in launches:
            table = self.layout.add_launch(list(launch.parameters), words.place_of)
            handle = self.target.handle(launch)
            self._say(launch.program)  # whose end would unload the kernel
            first = self._say((handle, *launch.grid, *launch.block, launch.shared))
            calls.append(f"launch(*{first}, stream, base + {table}, 0)")
        if words.values:
            write = self._say(words.writer())
            values = ", ".join(words.values)
            self.lines.append(f"{write}(room.words, {words.begin}, {values})")
        for place, value in words.maps:
            self.lines.append(f"move_map(base + {place}, {value})")
        self.lines.append("try:")
        self.lines += [f"    {call}" for call in calls]
        self.lines.append("except Exception as error: return failed(error, a, n)")


class _Words:
    """What is written before a group of launches, each thing once."""

    def __init__(self, layout: Layout) -> None:
        self.begin = layout.add(0)
        self.values: list[str] = []
        self.maps: list[tuple[int, str]] = []
        self._layout = layout
        self._format = "<"
        self._places: dict[Parameter, int] = {}

    def add(self, parameter: Parameter) -> None:
        if isinstance(parameter, Constant) or parameter in self._places:
            return
        if isinstance(parameter, Number):
            code = parameter.code
            fetched = "a" if isinstance(parameter.place, int) else "n"
            value = f"{fetched}[{parameter.place!r}]"
        else:
            code, value = "Q", _address(parameter)
        self._places[parameter] = self._layout.add(8)
        self._format += f"{code}{8 - struct.calcsize(code)}x"
        self.values.append(value)

    def add_map(self, parameter: TensorMap) -> None:
        if parameter not in self._places:
            self._places[parameter] = -1
            self.maps.append((-1, _address(parameter.address)))

    def place_of(self, parameter: Parameter) -> int:
        if isinstance(parameter, TensorMap) and self._places[parameter] < 0:
            place = self._layout.add_map(parameter)
            at = self.maps.index((-1, _address(parameter.address)))
            self.maps[at] = (place, self.maps[at][1])
            self._places[parameter] = place
        return self._places[parameter]

    def writer(self) -> Callable[..., None]:
        return struct.Struct(self._format).pack_into


def _address(parameter: Any) -> str:
    assert isinstance(parameter, Address)
    more = f" + {parameter.offset}" if parameter.offset else ""
    return f"{parameter.name}.data_ptr(){more}"


def _used(steps: list[Step], returned: list[str]) -> list[Step]:
    """Leave out the views that nothing needs: a launch knows where they begin."""
    needed = set(returned)
    kept: list[Step] = []
    for step in reversed(steps):
        if isinstance(step, Compute):
            if step.view and not needed & set(step.names):
                continue
            needed |= _names([step])
        elif isinstance(step, (Allocate, Zeros)):
            if step.name not in needed:
                continue
        else:
            needed |= _names([step])
        kept.append(step)
    return kept[::-1]


def _in_final_form(
    steps: list[Step], recorder: Recorder, returned: list[str]
) -> list[Step]:
    """Allocate a tensor in the form in which it is returned, if nothing needs another.

    Kernels know only where it begins.
    """
    for name in dict.fromkeys(returned):
        root, tensor = recorder.root_of(name), recorder.tensor(name)

        def same_memory(names: set[str], root: Address = root) -> bool:
            return any(recorder.root_of(one).name == root.name for one in names)

        made = next((s for s in steps if getattr(s, "name", "") == root.name), None)
        others = [s for s in steps if isinstance(s, Compute) and not s.view]
        if (
            not isinstance(made, Allocate)
            or root.offset
            or made.dtype != tensor.dtype
            or torch.Size(made.size).numel() != tensor.numel()
            or same_memory(_names(others))
            or same_memory(set(returned) - {name})
        ):
            continue
        final = Allocate(root.name, tuple(tensor.shape), tensor.stride(), made.dtype)
        recorder.rename(tensor, root.name)
        steps = [
            final if step is made else step
            for step in steps
            if not (isinstance(step, Compute) and same_memory(set(_made(step))))
        ]
    return steps


def _made(step: Compute) -> tuple[str, ...]:
    return tuple(name for name in step.names if name)


def _is_large(step: Step) -> bool:
    """Say whether a step makes a tensor that is worth to be let go early."""
    if not isinstance(step, Allocate):
        return False
    return torch.Size(step.size).numel() * step.dtype.itemsize >= LARGE


def _let_go(groups: list[list[Step]], kept: set[str]) -> list[list[str]]:
    """Return the names that no later group needs, for each group.

    None where nothing is large: then holding all of it costs less than letting it go.
    """
    none: list[list[str]] = [[] for _ in groups]
    if not any(_is_large(step) for group in groups for step in group):
        return none
    last: dict[str, int] = {}
    for place, group in enumerate(groups):
        made = {name for step in group for name in _made_by(step)}
        last |= dict.fromkeys(_names(group) | made, place)
    for name, place in sorted(last.items()):
        if name not in kept:
            none[place].append(name)
    return none


def _made_by(step: Step) -> tuple[str, ...]:
    if isinstance(step, Compute):
        return _made(step)
    return (step.name,) if isinstance(step, Allocate) else ()


def _groups(steps: list[Step]) -> Iterator[list[Step]]:
    """Put launches together that follow each other; all else stands alone."""
    together: list[Step] = []
    for step in steps:
        if isinstance(step, Launch):
            together.append(step)
        elif isinstance(step, Compute) or _is_large(step):
            if together:
                yield together
            together = []
            yield [step]
    if together:
        yield together


def _names(steps: Sequence[Step]) -> set[str]:
    """Return the tensors that some steps need."""
    found: set[str] = set()
    for step in steps:
        if isinstance(step, Compute):
            mentioned = tree_iter((step.arguments, step.named))
            found |= {one.name for one in mentioned if isinstance(one, Name)}
        elif isinstance(step, Launch):
            for parameter in step.parameters:
                if isinstance(parameter, TensorMap):
                    found.add(parameter.address.name)
                elif isinstance(parameter, Address):
                    found.add(parameter.name)
    return found
