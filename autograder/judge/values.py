"""Values: draws inputs, knows the reference, gives the verdict.

It lives in the supervisor. No process that runs a learner's code holds a reference,
a seed, or a case that it has not been given yet.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import torch

from autograder.exercise import (
    Arguments,
    Case,
    Exercise,
    Outputs,
    Problem,
    Tolerance,
    Value,
)
from autograder.worker.tensors import from_bytes

# Of each floating-point type: all bits of the exponent, and the bit that makes a NaN
# quiet. Arithmetic on a signalling NaN gives the same one with that bit on.
_NAN = {
    torch.float16: (0x7C00, 0x0200),
    torch.bfloat16: (0x7F80, 0x0040),
    torch.float32: (0x7F80_0000, 0x0040_0000),
    torch.float64: (0x7FF0_0000_0000_0000, 0x0008_0000_0000_0000),
}
# Of these an output's right value may well be what stood there before.
_FEW = (torch.bool, torch.int8, torch.uint8, torch.int16)
_STRETCH = 4

_PUBLIC_SEED = 0


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
    """Draw a case's values: of a public one always the same.

    What a known mistake puts out there is stored (``prints.py``).
    """
    seed = _PUBLIC_SEED if purpose.startswith("public") else seed
    return exercise.problem(case, generator_for(seed, exercise.id, purpose))


def given(problem: Problem) -> dict[str, Value]:
    """Return the arguments that hold values: what a reference computes from."""
    return {name: v for name, v in problem.arguments.items() if v is not None}


def poison(name: str, dtype: torch.dtype, count: int, seed: int) -> bytes:
    """Return the bytes that an output holds before anything is written to it.

    Floating-point outputs hold a signalling NaN with a payload of its own: a copy
    keeps it, arithmetic sets its quiet bit, so that ``+=`` shows. Integers hold a
    number that no right answer is likely to hold; of one or two bytes, another at each
    place, since the same ones could be a row of equal values. All change with the seed,
    so that no answer can hold them by heart.
    """
    tag = hashlib.sha256(f"poison {seed} {name}".encode()).digest()
    size = dtype.itemsize
    if dtype is torch.bool:
        return b"\x01" * count
    if dtype in _FEW:
        return hashlib.shake_256(tag).digest(count * size)
    number = int.from_bytes(tag[:size], "little")
    if dtype in _NAN:
        exponent, quiet = _NAN[dtype]
        # The quiet bit is off, so some bit of the payload must be on.
        number = exponent | (number & (quiet - 1)) | 1
    return number.to_bytes(size, "little") * count


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
        read_first: whether what stands there was computed from what it held before.
        bits: of a number that is read by its bits, how many it has; 0 of others.
    """

    output: str
    wrong: torch.Tensor
    untouched: torch.Tensor
    index: int
    got: float | int | bool
    expected: float | int | bool
    shape: tuple[int, ...]
    read_first: bool = False
    bits: int = 0

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
    """Whether a case's outputs are right, and if not, where they are wrong.

    Args:
        wrong: the first output that is not right; ``None`` where all are.
        outputs: what came back, by name.
        bad: for each output, which of its elements are not right.
        untouched: likewise, which still hold what they held before.
        wanted: the reference, where an output is not right.
    """

    wrong: Wrong | None = None
    outputs: Outputs = field(default_factory=dict)
    bad: Outputs = field(default_factory=dict)
    untouched: Outputs = field(default_factory=dict)
    wanted: Outputs = field(default_factory=dict)

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
    scales = scales_of(exercise, arguments)
    outputs = {
        name: from_bytes(data[name], out.dtype, out.shape)
        for name, out in problem.outputs.items()
    }
    untouched = {n: _untouched(g, poisons.get(n, b"")) for n, g in outputs.items()}
    bad: dict[str, torch.Tensor] = {}
    for name, got in outputs.items():
        right = is_right(
            got, reference[name], scales.get(name), exercise.tolerance, case
        )
        # A NaN that was there before is no answer, even where NaN is right. A byte that
        # was there before may be: among so few numbers the right one is soon met.
        bad[name] = ~right if got.dtype in _FEW else ~right | untouched[name]
    first = next((name for name, where in bad.items() if bool(where.any())), None)
    if first is None:
        return Verdict(outputs=outputs, bad=bad, untouched=untouched)
    got = outputs[first]
    wrong = first_wrong(first, got, reference[first], bad[first], untouched[first])
    if problem.outputs[first].bits:
        wrong = replace(wrong, bits=8 * got.element_size())
    read = _untouched(got, _quieted(poisons.get(first, b""), got.dtype))
    wrong = replace(wrong, read_first=bool(read.reshape(-1)[wrong.index]))
    return Verdict(wrong, outputs, bad, untouched, reference)


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
    exact = reference.double()
    # What the reference is in the output's own type: where it overflows there, the
    # same infinity is right.
    rounded = exact.to(got.dtype)
    magnitude = exact.abs() if scale is None else scale.cpu().double()
    allowed = allowed_error(magnitude, got.dtype, tolerance, case).reshape(got.shape)
    # Inf - Inf is NaN, and no comparison with NaN holds: finite values only.
    near = (got.double() - exact).abs() <= allowed
    near &= torch.isfinite(got) & torch.isfinite(exact)
    same: torch.Tensor = (got == rounded) | (torch.isnan(got) & torch.isnan(exact))
    right: torch.Tensor = near | same
    return right


def allowed_error(
    magnitude: torch.Tensor, dtype: torch.dtype, tolerance: Tolerance, case: Case
) -> torch.Tensor:
    """Return how far from right each element may be, where that is its magnitude."""
    facts = torch.finfo(dtype)
    length = float(max(1, tolerance.length(case)))
    relative = tolerance.factor * facts.eps * length**0.5
    allowed: torch.Tensor = relative * magnitude + facts.smallest_normal * facts.eps
    return allowed


def is_mistaken(
    got: torch.Tensor,
    mistaken: torch.Tensor,
    scale: torch.Tensor | None,
    tolerance: Tolerance,
    case: Case,
) -> torch.Tensor:
    """Say for each element whether it is what a mistake gives, within the tolerance."""
    if scale is not None and mistaken.numel():
        # A mistake may add up more than what is right has, and rounds accordingly, also
        # where most of it cancels: another processor adds in another order.
        own = mistaken.double().cpu().abs().nan_to_num(0.0, 0.0, 0.0)
        scale = torch.maximum(scale.cpu().double(), own.max())
    return is_right(got, mistaken, scale, tolerance, case)


def _untouched(got: torch.Tensor, before: bytes) -> torch.Tensor:
    if not before or got.numel() == 0:
        return torch.zeros(got.shape, dtype=torch.bool)
    old = from_bytes(before, torch.uint8, (len(before),)).reshape(got.numel(), -1)
    now = got.contiguous().reshape(-1).view(torch.uint8).reshape(got.numel(), -1)
    same = (now == old).all(dim=1)
    if got.dtype in _FEW and got.dtype is not torch.bool:
        same = _in_stretches(same)
    return same.reshape(got.shape)


def _in_stretches(same: torch.Tensor) -> torch.Tensor:
    """Keep what stands beside others: a byte alone may be there by chance."""
    least = min(_STRETCH, len(same))
    kept = torch.zeros_like(same)
    begins = same.unfold(0, least, 1).all(dim=1)
    for shift in range(least):
        kept[shift : shift + len(begins)] |= begins
    return kept


def _quieted(before: bytes, dtype: torch.dtype) -> bytes:
    """Return what arithmetic makes of the poison; nothing where that is the same."""
    if dtype not in _NAN:
        return b""
    element = int.from_bytes(before[: dtype.itemsize], "little") | _NAN[dtype][1]
    return element.to_bytes(dtype.itemsize, "little") * (len(before) // dtype.itemsize)


def first_wrong(
    name: str,
    got: torch.Tensor,
    reference: torch.Tensor,
    bad: torch.Tensor,
    untouched: torch.Tensor,
) -> Wrong:
    """Say where an output is first wrong, and what stands there."""
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


def scales_of(exercise: Exercise, arguments: Arguments) -> Mapping[str, torch.Tensor]:
    """Return the magnitude that each output's rounding is relative to."""
    scale = exercise.tolerance.scale
    return scale(arguments) if scale else {}
