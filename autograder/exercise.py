"""What an exercise is: one declaration that feeds every part of the course.

The notebook's ``check``, ``make grade``, the class runner, the book's exercise box
and the tests of wrong answers all read the same ``Exercise``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch

Kind = Literal["warm-up", "core", "detective", "ladder"]
Language = Literal["cuda", "python", "cpp"]
Entry = Literal["kernel", "function", "ranks", "circuit"]
Value = torch.Tensor | int | float
Arguments = Mapping[str, Value]
Outputs = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Launch:
    """How the grader launches a learner's kernel: blocks, threads, dynamic bytes."""

    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int = 0


@dataclass(frozen=True)
class Case:
    """One size and value regime that an answer is tried on.

    Args:
        name: what the learner reads, such as ``n = 257, normal values``.
        sizes: the named sizes that ``Exercise.problem`` reads.
        regime: how values are drawn: ``distinct``, ``zeros``, ``large``,
            ``special`` (NaN and Inf among them), or one that the exercise knows.
        dtype: element type of the floating-point inputs.
    """

    name: str
    sizes: Mapping[str, int]
    regime: str = "distinct"
    dtype: torch.dtype = torch.float32


@dataclass(frozen=True)
class Output:
    """The tensor that an answer must produce; its buffer is poisoned beforehand.

    Args:
        shape: of the tensor.
        dtype: of its elements.
        bits: whether a whole number is read by its bits: a message shows it in hex.
        labels: what messages call each element, where its index tells nothing.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    bits: bool = False
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Problem:
    """A case with its values drawn.

    Args:
        arguments: every argument by name, in the order of the parameters. For a
            kernel entry an output's name stands here too, with value ``None``:
            the runner puts the poisoned buffer in its place. CPU tensors.
        outputs: what is written (kernel) or returned, in order (function).
        launch: for a kernel entry, how it is launched.
        ranks: for a ranks entry, how many processes run the function together. Each
            tensor, of the outputs too, is stacked by rank: rank 1 is given ``x[1]``,
            and what it returns is ``out[1]``. Numbers are the same for all. For a
            kernel entry, how many ranks launch it together, stacked alike (0: it is
            launched alone); a tensor with one number a rank gives each rank its own.
        replicated: names of the tensors that every rank is given whole: a kernel, as
            pointers to all ranks' parts.
        cycles: for a circuit entry, how many clock cycles it may take. Its numbers
            make the component, as arguments of the class; a tensor of whole numbers is
            what the port of that name is given, and an output what one gives: an item
            whenever valid and ready meet, if the port is a stream; else one a cycle,
            the outputs late by the component's ``latency`` (0 unless it says so).
            A row of a tensor of rows fills a payload's fields in their order.
            ``x.valid`` and ``out.ready`` are tensors that say in which cycles the
            outside has an item for the stream ``x``, or room for one of ``out``.
    """

    arguments: Mapping[str, Value | None]
    outputs: Mapping[str, Output]
    launch: Launch | None = None
    ranks: int = 0
    cycles: int = 0
    replicated: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tolerance:
    """How far from the float64 reference is right.

    ``|got - reference| <= factor * eps(dtype) * sqrt(length) * scale``, plus the
    smallest subnormal of the dtype. NaN must meet NaN, and Inf the same Inf.

    Args:
        factor: a small derived constant; its derivation stands beside the exercise.
        length: how many terms are summed into one output.
        scale: magnitude that rounding is relative to, from the arguments;
            ``None`` stands for ``|reference|``.
    """

    factor: float
    length: Callable[[Case], int] = lambda case: 1
    scale: Callable[[Arguments], Outputs] | None = None


@dataclass(frozen=True)
class Count:
    """What a whole traced launch may do, beside the least that the work needs.

    It is read from one public case, over all accesses of its kind together; what does
    less than the ideal is as good. ``autograder.ideals`` makes the usual ones.

    Args:
        metric: ``moved`` (bytes of the 32-byte sectors that requests touch, each time
            they do; of a Triton program its lanes' bytes), ``bytes`` (what the lanes
            ask for), ``requests``, ``wavefronts``, ``writers`` (of one element of an
            output, the most), ``readers`` (blocks or programs that go over all of one
            large input, the most), or what a block does as a whole, whatever the
            memory:
            ``barriers``, ``shuffles`` and what else a trace counts
            (``kernelwright.emulator.operations``).
            Of a circuit ``cycles``, and of its description ``multipliers`` and
            ``register bits`` (without those of a memory's ports); of ranks, by the one
            that does most, ``sent bytes``, ``messages``, how many ``receivers`` these
            have, and ``messages at once``, sends or receives, whichever are fewer; of
            a function that prints CUDA C++, how often that calls a function: ``calls
            of tanhf in the text``.
        space: ``global`` or ``shared``; none of what is not of a memory.
        op: ``load`` or ``store``; an asynchronous copy is a load from global memory.
        ideal: the least that the work needs; ``None`` derives it from the sizes of the
            inputs or outputs.
        passes: how often each of these is gone over, by name where they differ.
        width: bytes that a lane asks for at once, where that is to be more than an
            element: fewer requests are ideal then.
        times: how many times the ideal earns the points; ``None`` where more is fine.
        at_least: the least that earns them; ``None`` where less is no harm.
        advice: what to do about it, where the figure alone does not say.
    """

    metric: str
    space: str = ""
    op: str = ""
    ideal: float | None = None
    passes: float | Mapping[str, float] = 1
    width: int | None = None
    times: float | None = 1.05
    at_least: float | None = None
    advice: str = ""


@dataclass(frozen=True)
class Structure:
    """What an answer must hold or must not: SASS mnemonics, or a Python cell's names.

    Args:
        holds: each must occur as a prefix of some instruction, as ``LDG.E.128``; in
            Python, as a name or one attribute of a name, as ``tl.load``; of a circuit,
            as a kind of cell, as ``$divfloor`` for ``//``.
        lacks: none may occur.
        message: what to tell the learner when it is not so.
        arch: the chip it is compiled for; needs no GPU.
        runs_no: in Python, parts of the names of torch's operations, none of which may
            run while the answer is called, under whatever name: ``logsumexp``.
    """

    holds: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    message: str = ""
    arch: str = "sm_90"
    runs_no: tuple[str, ...] = ()


@dataclass(frozen=True)
class Speed:
    """How speed is judged: a peer timed in the same run, and bands of its ratio.

    Args:
        peer: name of the peer, as the report prints it (``copy bandwidth``).
        run_peer: does the peer's work once on device tensors; ``None`` where the
            peer is the copy bandwidth itself.
        case: the size that is timed; its footprint must pass four L2s.
        bytes_moved: least bytes that the work must move, from the case.
        bands: fraction of the peer that earns bronze, silver and gold.
        families: bands of a GPU family that differ from these, by its name:
            ``turing``, ``ampere``, ``ada``, ``hopper``, ``blackwell``.
        unknown: bands on a GPU that the data-sheet table does not know, as a
            fraction of its measured copy bandwidth, or of the peer's rate where
            operations are counted; ``None`` keeps ``bands``.
        flops: operations that the work must do, from the case, where those bound it
            and not its bytes (2 m n k for a matrix product); ``None`` where bytes do.
        unit: which of the data sheet's peaks bounds them: ``fp32`` outside the
            matrix units, or ``half`` for 16-bit products with float32 sums.
        reads_only: whether next to nothing of the bytes is written: such a kernel may
            be faster than a copy.
    """

    peer: str
    case: Case
    bytes_moved: Callable[[Case], int]
    bands: Mapping[str, float]
    run_peer: Callable[[Arguments], object] | None = None
    families: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    unknown: Mapping[str, float] | None = None
    flops: Callable[[Case], int] | None = None
    unit: Literal["fp32", "half"] = "fp32"
    reads_only: bool = False


def withheld(arguments: Arguments) -> Outputs:
    """Stand for a reference that would give the answer away.

    ``chapter`` puts the one of ``hidden.py`` in its place; where that file was left
    out, the answer's print is what public cases are compared with.
    """
    raise NotImplementedError("this edition has no reference for this exercise")


@dataclass(frozen=True, kw_only=True)
class Exercise:
    """One exercise of one chapter.

    Args:
        id: unique in the course; the cell is ``ex-<id>``.
        stem: the chapter's stem, such as ``vector_add``; ``chapter`` sets it.
        title: a short noun phrase.
        kind: warm-up, core, detective or ladder.
        points: what full marks earn.
        language: ``cuda`` (a ``%%cuda`` cell), ``python``, or ``cpp`` (a ``%%cpp``
            cell of C++ for the host, whose function writes its outputs).
        entry: ``kernel`` (the grader launches it), ``function`` (it calls it),
            ``ranks`` (n processes of one torch.distributed group call it) or
            ``circuit`` (an Amaranth component, which it simulates).
        name: the kernel or function that the cell must define.
        source: file with the marked region, relative to the repository's root.
        goal: one sentence that says what the learner makes.
        requirements: what an answer must do, one line each.
        problem: draws a case's values.
        reference: the right outputs in float64 (or exact integers), on the CPU;
            ``withheld`` where only ``hidden.py`` may have it.
        cases: public cases, named in the report.
        hidden: draws further cases from the secret seed; ``chapter`` sets it.
        hints: three, from a nudge to nearly the answer.
        onward: one line on what to try next, shown when all is passed.
        counted: which of the public cases the counts are read from.
        repeats: arguments that take few values by their nature, such as bins or labels;
            a test holds the others to differ from element to element.
        needs: exercises whose cells are run before this one.
        prelude: Python that stands before the cell (the chapter's imports). If it
            defines ``__adapt__``, that is called in the answer's place, as
            ``__adapt__(answer, *arguments)``: it makes what the answer takes of
            tensors and numbers, and tensors of what the answer returns.
    """

    id: str
    stem: str = ""
    title: str
    kind: Kind
    points: int
    language: Language
    entry: Entry
    name: str
    source: str
    goal: str
    requirements: tuple[str, ...]
    problem: Callable[[Case, torch.Generator], Problem]
    reference: Callable[[Arguments], Outputs]
    cases: tuple[Case, ...]
    hidden: Callable[[torch.Generator], Iterable[Case]] = lambda generator: ()
    tolerance: Tolerance
    hints: tuple[str, str, str]
    onward: str
    counts: tuple[Count, ...] = ()
    counted: int = 0
    structure: tuple[Structure, ...] = ()
    speed: Speed | None = None
    repeats: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    prelude: str = "import torch\nimport kernelwright as kw\n"
    shares: Mapping[str, float] = field(
        default_factory=lambda: {"correct": 0.6, "counts": 0.2, "speed": 0.2}
    )

    @property
    def wants_triton(self) -> bool:
        """Whether the answer's work is to be done by Triton kernels of its own."""
        return any("triton.jit" in wanted.holds for wanted in self.structure)
