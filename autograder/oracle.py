"""The oracle: draws inputs, knows the reference, gives the verdict.

It lives in the supervisor. No process that runs a learner's code holds a reference,
a seed, or a case that it has not been given yet.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

from autograder.exercise import (
    Arguments,
    Case,
    Exercise,
    NearMiss,
    Outputs,
    Problem,
    Tolerance,
    Value,
)
from autograder.worker.tensors import from_bytes


def fresh_seed() -> int:
    """Draw a seed that nobody knows yet; short enough to be typed again."""
    return secrets.randbelow(2**31)


def generator_for(seed: int, *purpose: str) -> torch.Generator:
    """Return a generator for one purpose: cases do not depend on each other."""
    text = "\0".join((str(seed), *purpose)).encode()
    number = int.from_bytes(hashlib.sha256(text).digest()[:8], "little")
    return torch.Generator().manual_seed(number >> 1)


def cases_of(exercise: Exercise, seed: int, public: bool) -> Iterator[tuple[Case, str]]:
    """Give the cases in order, each with the name under which its values are drawn."""
    for number, case in enumerate(exercise.cases):
        yield case, f"public {number}"
    if not public:
        hidden = exercise.hidden(generator_for(seed, exercise.id, "hidden"))
        for number, case in enumerate(hidden):
            yield case, f"hidden {number}"


def draw(exercise: Exercise, case: Case, seed: int, purpose: str) -> Problem:
    """Draw a case's values."""
    return exercise.problem(case, generator_for(seed, exercise.id, purpose))


def given(problem: Problem) -> dict[str, Value]:
    """Return the arguments that hold values: what a reference computes from."""
    return {name: v for name, v in problem.arguments.items() if v is not None}


def poison(name: str, dtype: torch.dtype, count: int, seed: int) -> bytes:
    """Return the bytes that an output holds before anything is written to it.

    Floating-point outputs hold a NaN with a payload of its own; integers a number
    that no right answer is likely to hold. Both change with the seed, so that no
    answer can hold them by heart.
    """
    tag = hashlib.sha256(f"poison {seed} {name}".encode()).digest()
    size = dtype.itemsize
    if dtype is torch.bool:
        return b"\x01" * count
    element = bytearray(tag[:size])
    if dtype.is_floating_point:
        # Exponent all ones and the quiet bit: a NaN, whatever the payload is.
        if dtype is torch.float16:
            element[1] = 0x7E | (element[1] & 1)
        elif dtype is torch.bfloat16:
            element[1], element[0] = 0x7F, 0xC0 | (element[0] & 0x3F)
        elif dtype is torch.float32:
            element[3], element[2] = 0x7F, 0xC0 | (element[2] & 0x3F)
        else:
            element[7], element[6] = 0x7F, 0xF8 | (element[6] & 7)
    return bytes(element) * count


@dataclass(frozen=True)
class Wrong:
    """One output that is not right.

    Args:
        output: its name.
        wrong: where it is wrong, flat, in order.
        untouched: where it still holds what it held before (among ``wrong``).
        index: the first wrong place.
        got, expected: what stands there, and what should.
        shape: of the output.
    """

    output: str
    wrong: torch.Tensor
    untouched: torch.Tensor
    index: int
    got: float | int | bool
    expected: float | int | bool
    shape: tuple[int, ...]

    @property
    def place(self) -> tuple[int, ...]:
        """The first wrong place along each axis."""
        place: list[int] = []
        left = self.index
        for size in reversed(self.shape):
            place.insert(0, left % size)
            left //= size
        return tuple(place)


@dataclass(frozen=True)
class Verdict:
    """Whether a case's outputs are right, and if not, which known mistakes fit."""

    wrong: Wrong | None = None
    near_misses: tuple[NearMiss, ...] = ()

    @property
    def right(self) -> bool:
        """Whether all outputs are right."""
        return self.wrong is None


def judge(
    exercise: Exercise,
    case: Case,
    problem: Problem,
    data: Mapping[str, bytes],
    poisons: Mapping[str, bytes],
) -> Verdict:
    """Compare the outputs' bytes with the reference.

    Args:
        exercise: whose reference and tolerance count.
        case: the size and regime.
        problem: its values.
        data: the bytes of each output, of the size that the problem fixes.
        poisons: what each output held before.
    """
    arguments = given(problem)
    reference = exercise.reference(arguments)
    scale = exercise.tolerance.scale
    scales = scale(arguments) if scale else {}
    outputs = {
        name: from_bytes(data[name], out.dtype, out.shape)
        for name, out in problem.outputs.items()
    }
    for name, got in outputs.items():
        right = is_right(
            got, reference[name], scales.get(name), exercise.tolerance, case
        )
        untouched = _untouched(got, poisons.get(name, b""))
        # A NaN that was there before is no answer, even where NaN is right.
        bad = ~right | untouched if got.dtype is not torch.bool else ~right
        if bool(bad.any()):
            wrong = _wrong(name, got, reference[name], bad, untouched)
            fitting = _near_misses(exercise, case, arguments, outputs, scales)
            return Verdict(wrong, fitting)
    return Verdict()


def is_right(
    got: torch.Tensor,
    reference: torch.Tensor,
    scale: torch.Tensor | None,
    tolerance: Tolerance,
    case: Case,
) -> torch.Tensor:
    """Say for each element whether it is within the tolerance of the reference."""
    reference = reference.cpu().reshape(got.shape)
    if not got.dtype.is_floating_point:
        return got == reference.to(got.dtype)
    facts = torch.finfo(got.dtype)
    exact = reference.double()
    # What the reference is in the output's own type: where it overflows there, the
    # same infinity is right.
    rounded = exact.to(got.dtype)
    magnitude = exact.abs() if scale is None else scale.cpu().double()
    length = float(max(1, tolerance.length(case)))
    relative = tolerance.factor * facts.eps * length**0.5
    allowed = relative * magnitude.reshape(got.shape)
    allowed = allowed + facts.smallest_normal * facts.eps
    # Inf - Inf is NaN, and no comparison with NaN holds: finite values only.
    near = (got.double() - exact).abs() <= allowed
    near &= torch.isfinite(got) & torch.isfinite(exact)
    same: torch.Tensor = (got == rounded) | (torch.isnan(got) & torch.isnan(exact))
    right: torch.Tensor = near | same
    return right


def _untouched(got: torch.Tensor, before: bytes) -> torch.Tensor:
    if not before or got.numel() == 0:
        return torch.zeros(got.shape, dtype=torch.bool)
    old = from_bytes(before, torch.uint8, (len(before),)).reshape(got.numel(), -1)
    now = got.contiguous().reshape(-1).view(torch.uint8).reshape(got.numel(), -1)
    return (now == old).all(dim=1).reshape(got.shape)


def _wrong(
    name: str,
    got: torch.Tensor,
    reference: torch.Tensor,
    bad: torch.Tensor,
    untouched: torch.Tensor,
) -> Wrong:
    flat = bad.reshape(-1)
    index = int(flat.nonzero()[0])
    expected = reference.cpu().reshape(-1)[index].to(got.dtype)
    return Wrong(
        output=name,
        wrong=flat,
        untouched=(untouched.reshape(-1) & flat),
        index=index,
        got=got.reshape(-1)[index].item(),
        expected=expected.item(),
        shape=tuple(got.shape),
    )


def _near_misses(
    exercise: Exercise,
    case: Case,
    arguments: Arguments,
    outputs: Outputs,
    scales: Mapping[str, torch.Tensor],
) -> tuple[NearMiss, ...]:
    """Find the known mistakes that give just this output."""

    def fits(miss: NearMiss) -> bool:
        mistaken = miss.output(arguments)
        return all(
            name in mistaken
            and mistaken[name].numel() == got.numel()
            and bool(
                is_right(
                    got, mistaken[name], scales.get(name), exercise.tolerance, case
                ).all()
            )
            for name, got in outputs.items()
        )

    return tuple(miss for miss in exercise.near_misses if fits(miss))
