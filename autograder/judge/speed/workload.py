"""What the trusted process holds: the memory, the inputs, the peer, the answers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch

from autograder.exercise import Arguments, Exercise, Outputs, Problem
from autograder.judge.speed.draws import Draws
from autograder.judge.speed.layout import lay_out, scalars_of
from autograder.judge.speed.peers import Turn, copy_turn, run_turn, work_turn
from autograder.judge.speed.returned import Segments, find_outputs
from autograder.judge.speed.samples import Made, Sealed, seal, wrong_places
from autograder.worker import device_memory
from autograder.worker.places import Layout
from kernelwright.measure import copy_bandwidth
from kernelwright.measure.fresh import CACHES

_MOST_CALLS = 512
_LEAST_CALLS = 2
_WAKE_BYTES, _WAKE_CALLS = 1 << 26, 64
_POISON = 0xA5
"""Fills outputs before a turn: as a float it is a small odd number, never right."""


class NoRoom(Exception):
    """The GPU has too little memory for the speed case."""


@dataclass
class Workload:
    """One exercise's workload at the GPU.

    Args:
        exercise: has a ``speed``.
        draws: makes inputs and right answers.
        layout: where a call's tensors lie.
        calls: calls in a turn; each has a set of its own.
        memory: the shared bytes.
        handle: by which the learner's process opens them.
        work: a turn of the peer.
        wake: about a millisecond of copying: an idle GPU lowers its clocks.
        copy_gbps: measured copy bandwidth.
    """

    exercise: Exercise
    draws: Draws
    layout: Layout
    calls: int
    memory: torch.Tensor
    handle: bytes
    work: Turn
    wake: Turn
    copy_gbps: float
    problem: Problem
    segments: Segments = field(default_factory=Segments)
    sealed: list[Sealed] = field(default_factory=list)

    @staticmethod
    def build(
        exercise: Exercise, seed: int, *, target_s: float, by_copy: bool, part: float
    ) -> Workload:
        """Measure, choose how many calls make a turn, and lay out the memory.

        Args:
            exercise: what is judged.
            seed: the supervisor's.
            target_s: how long a turn of the peer should take.
            by_copy: whether copying takes the peer's place.
            part: share of the free device memory that may be taken.

        Raises:
            NoRoom: not even two calls fit.
        """
        speed = exercise.speed
        assert speed is not None
        l2 = int(torch.cuda.get_device_properties(0).L2_cache_size)
        draws = Draws(exercise, seed)
        problem = draws.problem(0, 0)
        on_kernel = problem.launch is not None
        layout = lay_out(problem, outputs=on_kernel)
        moved = speed.bytes_moved(speed.case)
        copy_gbps = copy_bandwidth(seconds=0.1).gbps
        assert copy_gbps is not None
        returned = 0 if on_kernel else output_bytes(problem)
        each_s = moved / (copy_gbps * 1e9)
        if not by_copy:
            assert speed.run_peer is not None
            each_s = max(each_s, _seconds(work_turn(speed.run_peer, [_known(problem)])))
        free, _ = torch.cuda.mem_get_info()
        calls = calls_in_turn(
            set_bytes=layout.stride,
            returned_bytes=returned,
            cache_bytes=l2,
            room=int(part * free),
            each_s=each_s,
            target_s=target_s,
        )
        size = layout.stride * calls
        address = device_memory.allocate(size)
        memory = device_memory.as_bytes(address, size)
        spare = torch.randint(0, 256, (_WAKE_BYTES,), dtype=torch.uint8, device="cuda")
        workload = Workload(
            exercise,
            draws,
            layout,
            calls,
            memory,
            device_memory.export(address),
            lambda: None,
            copy_turn(spare, spare.numel(), _WAKE_CALLS),
            copy_gbps,
            problem,
        )
        workload.refresh(0)
        if by_copy:
            # It overwrites the inputs, which are drawn anew before each turn.
            workload.work = copy_turn(memory, moved, calls)
        else:
            assert speed.run_peer is not None
            sets = [workload.arguments(call) for call in range(calls)]
            workload.work = work_turn(speed.run_peer, sets)
        return workload

    def refresh(self, turn: int) -> None:
        """Draw every call's inputs anew and poison the outputs."""
        for call in range(self.calls):
            problem = self.draws.problem(turn, call)
            for place in self.layout.places:
                view = self.layout.view(self.memory, call, place)
                if place.output:
                    begin = call * self.layout.stride + place.offset
                    self.memory[begin : begin + place.size].fill_(_POISON)
                else:
                    value = problem.arguments[place.name]
                    assert isinstance(value, torch.Tensor)
                    view.copy_(value)
        torch.cuda.synchronize()

    def constant_scalars(self) -> dict[str, int | str] | None:
        """Return the scalars of every call, if no call has others."""
        first = scalars_of(self.problem)
        others = [scalars_of(self.draws.problem(0, call)) for call in (1, 2, 3)]
        # A float is drawn as a rule; three draws of a whole number tell enough.
        return first if all(other == first for other in others) else None

    def arguments(self, call: int) -> Arguments:
        """Return one call's arguments, without its outputs."""
        tensors = {
            place.name: self.layout.view(self.memory, call, place)
            for place in self.layout.places
            if not place.output
        }
        known = _known(self.problem)
        return {name: tensors.get(name, value) for name, value in known.items()}

    def made_here(self) -> list[Made]:
        """Say where a kernel's outputs lie: in the shared memory itself."""
        base = self.memory.data_ptr()
        return [
            Made(
                place.name,
                place.dtype,
                place.shape,
                place.strides,
                tuple(
                    base + call * self.layout.stride + place.offset
                    for call in range(self.calls)
                ),
            )
            for place in self.layout.places
            if place.output
        ]

    def made_there(self, told: dict[str, Any]) -> list[Made]:
        """Find the outputs that a function returned, in its process's own memory.

        Raises:
            WrongOutputs: what is told is not what the exercise asks for.
        """
        return find_outputs(told, self.problem, self.calls, self.segments)

    def seal(self, made: list[Made], key: int) -> None:
        """Copy the probes; over when this returns."""
        self.sealed = seal(made, key)

    def check(self, turn: int, calls: list[int], whole: int) -> dict[str, Any] | None:
        """Compare the sealed probes of some calls, and all of one call's outputs.

        Returns:
            The first wrong element, or ``None``.
        """
        for call in calls:
            problem = self.draws.problem(turn, call)
            want, scale = self.draws.expected(problem)
            for one in self.sealed:
                found = self._probed(one, call, want, scale)
                if found is not None:
                    # Right by now means that it was finished behind the clock.
                    late = self._now(one, call, want, scale) is None
                    return {
                        "call": call,
                        "output": one.made.name,
                        "late": late,
                        **found,
                    }
                if call == whole:
                    found = self._now(one, call, want, scale)
                if found is not None:
                    return {"call": call, "output": one.made.name, **found}
        return None

    def _probed(
        self, one: Sealed, call: int, want: Outputs, scale: Outputs
    ) -> dict[str, Any] | None:
        """Compare what was sealed of one output of one call."""
        index = one.index[call]
        right = want[one.made.name].reshape(-1)[index]
        scales = scale[one.made.name].reshape(-1)[index]
        return self._first_wrong(one.got[call], right, scales, index)

    def _now(
        self, one: Sealed, call: int, want: Outputs, scale: Outputs
    ) -> dict[str, Any] | None:
        """Compare all of one output of one call, as it stands now."""
        got = one.made.whole(call).reshape(-1)
        right = want[one.made.name].reshape(-1)
        scales = scale[one.made.name].reshape(-1)
        index = torch.arange(got.numel(), device=got.device)
        return self._first_wrong(got, right, scales, index)

    def _first_wrong(
        self,
        got: torch.Tensor,
        right: torch.Tensor,
        scale: torch.Tensor,
        index: torch.Tensor,
    ) -> dict[str, Any] | None:
        """Describe the first element that is wrong, if one is."""
        assert self.exercise.speed is not None
        case = self.exercise.speed.case
        wrong = wrong_places(got, right, scale, self.exercise.tolerance, case)
        if not bool(wrong.any()):
            return None
        first = int(wrong.nonzero()[0])
        return {
            "index": int(index[first]),
            "got": repr(got[first].item()),
            "expected": repr(right[first].item()),
            "share": float(wrong.double().mean()),
        }


def calls_in_turn(
    *,
    set_bytes: int,
    returned_bytes: int,
    cache_bytes: int,
    room: int,
    each_s: float,
    target_s: float,
) -> int:
    """Choose how many calls make a turn.

    Enough to pass four caches and to last, so that starting and stopping are small
    beside it; no more than memory holds.

    Raises:
        NoRoom: memory does not hold the fewest.
    """
    fitting = room // (set_bytes + 2 * returned_bytes)
    if fitting < _LEAST_CALLS:
        need = _LEAST_CALLS * (set_bytes + 2 * returned_bytes) / 1e9
        raise NoRoom(
            f"the timed size needs {need:.1f} GB of GPU memory, and "
            f"{room / 1e9:.1f} GB may be used"
        )
    cold = CACHES * cache_bytes // set_bytes + 1
    lasting = math.ceil(target_s / max(each_s, 1e-7))
    return max(_LEAST_CALLS, min(max(cold, lasting), fitting, _MOST_CALLS))


def output_bytes(problem: Problem) -> int:
    """Count the bytes of one call's outputs."""
    return sum(
        math.prod(output.shape) * output.dtype.itemsize
        for output in problem.outputs.values()
    )


def _known(problem: Problem) -> Arguments:
    """Return the arguments that have values: all but a kernel's outputs."""
    return {k: v for k, v in problem.arguments.items() if v is not None}


def _seconds(turn: Turn) -> float:
    """Time a turn after two to warm up; the best of three."""
    for _ in range(2):
        run_turn(turn)
    return min(run_turn(turn) for _ in range(3))
