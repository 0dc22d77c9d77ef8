"""Chapter 1: one thread an element, guard, grid stride, float4, and Triton.

One IEEE addition errs by at most eps/2 of its result (eps = 2^-23 for fp32). A factor
of 1 is twice what a right answer needs, and 2^13 times less than what an answer
computed in fp16 would show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from autograder.drawing import draw_pair, draw_vector, index, only, tensor, vector_case
from autograder.exercise import (
    Arguments,
    Case,
    Count,
    Exercise,
    Launch,
    NearMiss,
    Output,
    Outputs,
    Problem,
    Structure,
    Tolerance,
)
from autograder.exercises._vector_add import (
    CASES,
    COALESCED,
    STEM,
    THREADS,
    WRONG_OPERANDS,
    hidden_lengths,
    timed,
    total,
)
from autograder.exercises._vector_add_strides import SAXPY, SCALE_OFFSET

# --- add_one ----------------------------------------------------------------------


def exact_launch(n: int) -> Launch:
    """Return a launch of exactly n threads: the largest block up to 64 that fits."""
    threads = max(d for d in range(1, min(n, 64) + 1) if n % d == 0)
    return Launch((n // threads,), (threads,))


def _add_one_problem(case: Case, generator: torch.Generator) -> Problem:
    n = case.sizes["n"]
    x = draw_vector(case, generator)
    return Problem(
        {"x": x, "out": None},
        {"out": Output((n,), torch.float32)},
        exact_launch(n),
    )


def _add_one_reference(arguments: Arguments) -> Outputs:
    return {"out": tensor(arguments, "x").double() + 1}


def _add_one_block_forgotten(arguments: Arguments) -> Outputs:
    x = tensor(arguments, "x")
    return only(x + 1, index(x) < exact_launch(x.numel()).block[0])


def _add_one_hidden(generator: torch.Generator) -> Iterator[Case]:
    for regime in ("distinct", "special", "large"):
        n = int(torch.randint(100, 3000, (), generator=generator))
        yield vector_case(n, regime)


ADD_ONE = Exercise(
    id="add_one",
    stem=STEM,
    title="Add one",
    kind="warm-up",
    points=5,
    language="cuda",
    entry="kernel",
    name="add_one",
    source="solutions/vector_add/add_one.cu",
    goal="Write the body that one thread runs: `out[i] = x[i] + 1` for its own `i`.",
    requirements=(
        "There are exactly as many threads as elements, in one or more blocks.",
        "Each thread writes one element of `out`, and each element is written.",
    ),
    problem=_add_one_problem,
    reference=_add_one_reference,
    cases=(
        vector_case(640),
        vector_case(32),
        vector_case(31),
        vector_case(1),
        vector_case(257),
        vector_case(1000, "special"),
    ),
    hidden=_add_one_hidden,
    tolerance=Tolerance(factor=1.0),
    near_misses=(
        NearMiss(
            "block index forgotten",
            _add_one_block_forgotten,
            "Only the first block's elements are written: threadIdx.x starts again "
            "at 0 in every block. Add where the block begins, "
            "blockIdx.x * blockDim.x.",
        ),
        NearMiss(
            "copied",
            lambda arguments: {"out": tensor(arguments, "x")},
            "out is x itself: the addition is missing.",
        ),
        NearMiss(
            "index added",
            lambda arguments: {
                "out": tensor(arguments, "x") + index(tensor(arguments, "x"))
            },
            "Each element has its own index added, not one: out[i] = x[i] + 1.",
        ),
        NearMiss(
            "index written",
            lambda arguments: {"out": index(tensor(arguments, "x")) + 1.0},
            "out[i] holds i + 1: the value x[i] is wanted, not the index i.",
        ),
    ),
    hints=(
        "Every thread runs the same text. What differs between two threads of a "
        "block is `threadIdx.x`, and between two blocks `blockIdx.x`.",
        "A block holds `blockDim.x` threads, so block `b` begins at element `b * "
        "blockDim.x`. The thread's own element is `threadIdx.x` further on.",
        "First line: `int i = blockIdx.x * blockDim.x + threadIdx.x;` Second line: "
        "assign to `out[i]`.",
    ),
    onward="Launch it with one thread too few, and look at the last element.",
    counts=COALESCED,
)


# --- vector_add -------------------------------------------------------------------


def covering_launch(elements: int) -> Launch:
    """Return whole blocks of 256 threads that cover the elements; one at least."""
    return Launch((max(1, -(-elements // THREADS)),), (THREADS,))


def _add_problem(launch: Callable[[int], Launch] | None) -> Callable[..., Problem]:
    def problem(case: Case, generator: torch.Generator) -> Problem:
        x, y = draw_pair(case, generator)
        n = x.numel()
        output = {"out": Output((n,), torch.float32)}
        if launch is None:
            return Problem({"x": x, "y": y}, output)
        return Problem({"x": x, "y": y, "out": None, "n": n}, output, launch(n))

    return problem


def _add_reference(arguments: Arguments) -> Outputs:
    return {"out": tensor(arguments, "x").double() + tensor(arguments, "y").double()}


def _first(count: Callable[[int], int]) -> Callable[[Arguments], Outputs]:
    """Return the mistake that writes only the first ``count(n)`` sums."""

    def output(arguments: Arguments) -> Outputs:
        sums = total(arguments)
        return only(sums, index(sums) < count(sums.numel()))

    return output


VECTOR_ADD = Exercise(
    id="vector_add",
    stem=STEM,
    title="Vector add",
    kind="core",
    points=10,
    language="cuda",
    entry="kernel",
    name="vector_add",
    source="solutions/vector_add/guarded.cu",
    goal="Add two arrays of any length: `out[i] = x[i] + y[i]`.",
    requirements=(
        "The launch is whole blocks of 256 threads: often more threads than `n`.",
        "No thread reads or writes past the last element, `n` = 0 included.",
    ),
    problem=_add_problem(covering_launch),
    reference=_add_reference,
    cases=CASES,
    hidden=hidden_lengths(),
    tolerance=Tolerance(factor=1.0),
    near_misses=(
        NearMiss(
            "block index forgotten",
            _first(lambda n: THREADS),
            "Only the first block's 256 elements are written: threadIdx.x starts "
            "again at 0 in every block. Add blockIdx.x * blockDim.x.",
        ),
        NearMiss(
            "blocks one element apart",
            _first(lambda n: covering_launch(n).grid[0] - 1 + THREADS),
            "Block b begins at element b instead of b * blockDim.x, so the blocks "
            "lie on top of one another: multiply blockIdx.x by blockDim.x.",
        ),
        NearMiss(
            "guard one too tight",
            _first(lambda n: n - 1),
            "Only the last element is missing: the guard stops one too early. "
            "Element n - 1 exists, so the test is i < n.",
        ),
        NearMiss(
            "guard drops the last block",
            _first(lambda n: n // THREADS * THREADS),
            "The last block, the one that is not full, writes nothing: its guard "
            "must send home the threads past the end, not all of them.",
        ),
        *WRONG_OPERANDS,
    ),
    hints=(
        "257 elements need two blocks of 256. What should the other 255 threads of "
        "the second block do?",
        "Compute `i` as in add_one. Then ask whether this thread has an element at "
        "all: it has one if `i` is less than `n`.",
        "`int i = ...;` then `if (i < n) { ... }` with the addition inside the braces.",
    ),
    onward="Time it against torch.add with kw.bench: who is faster, and why?",
    counts=COALESCED,
    # One element a thread has its own ceiling, 0.81 on an H200; the ladder goes on.
    speed=timed({"bronze": 0.40, "silver": 0.60, "gold": 0.75}),
)


# --- vector_add_triton ------------------------------------------------------------

_BLOCK = 1024  # elements a program, as the stub's launcher says
TRITON_CASES = (*CASES, vector_case(4097))

VECTOR_ADD_TRITON = Exercise(
    id="vector_add_triton",
    stem=STEM,
    title="Vector add in Triton",
    kind="core",
    points=15,
    language="python",
    entry="function",
    name="vector_add_triton",
    source="solutions/vector_add/triton_add.py",
    goal="Write the same addition in Triton: a kernel over blocks, and its launch.",
    requirements=(
        "Program `p` adds elements `p * BLOCK` to `(p + 1) * BLOCK - 1`, "
        "those that exist.",
        "`vector_add_triton(x, y)` returns a new tensor, for every length, 0 included.",
    ),
    problem=_add_problem(None),
    reference=_add_reference,
    cases=TRITON_CASES,
    hidden=hidden_lengths(),
    tolerance=Tolerance(factor=1.0),
    near_misses=(
        NearMiss(
            "program index forgotten",
            _first(lambda n: _BLOCK),
            "Only the first 1,024 elements are written: every program works on the "
            "same block. Begin at tl.program_id(0) * BLOCK.",
        ),
        NearMiss(
            "too few programs",
            _first(lambda n: n // _BLOCK * _BLOCK),
            "The last block, the one that is not full, is missing: the number of "
            "programs is n / 1024 rounded up, triton.cdiv(n, 1024).",
        ),
        NearMiss(
            "programs one element apart",
            _first(lambda n: -(-n // _BLOCK) - 1 + _BLOCK),
            "Program p begins at element p instead of p * BLOCK.",
        ),
        NearMiss(
            "mask one too tight",
            _first(lambda n: n - 1),
            "Only the last element is missing: the mask is i < n.",
        ),
        *WRONG_OPERANDS,
    ),
    hints=(
        "A Triton program is a whole block. Its `i` is a vector of `BLOCK` indices,"
        " and its guard is a vector of booleans.",
        "`i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)` and `inside = i < n`."
        " Both `tl.load` and `tl.store` take `mask=inside`.",
        "`x = tl.load(x_ptr + i, mask=inside)`, the same for `y`, then "
        "`tl.store(out_ptr + i, x + y, mask=inside)`. Launch: "
        "`add_kernel[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)`, unless "
        "`n` is 0.",
    ),
    onward="Try BLOCK=256 and BLOCK=4096 on a GPU. Does the time care?",
    structure=(
        Structure(
            holds=("triton.jit", "tl.load", "tl.store"),
            message="The values are right, and no Triton kernel made them: write one "
            "with @triton.jit that loads (tl.load), adds and stores (tl.store).",
        ),
    ),
    prelude="import torch\nimport kernelwright as kw\n"
    "import triton\nimport triton.language as tl\n",
    speed=timed({"bronze": 0.60, "silver": 0.80, "gold": 0.92}),
)


# --- vector_add_vec4 (ladder) -----------------------------------------------------


def vector_launch(n: int) -> Launch:
    """Return a launch with a thread for each four elements, the last few included."""
    return covering_launch(-(-n // 4))


def _every_fourth(arguments: Arguments) -> Outputs:
    sums = total(arguments)
    i = index(sums)
    return only(sums, (i % 4 == 0) | (i >= sums.numel() // 4 * 4))


VECTOR_ADD_VEC4 = Exercise(
    id="vector_add_vec4",
    stem=STEM,
    title="Four floats a thread",
    kind="ladder",
    points=20,
    language="cuda",
    entry="kernel",
    name="vector_add_vec4",
    source="solutions/vector_add/vectorized.cu",
    goal="Add with 128-bit loads and stores: as close to copy bandwidth as you can.",
    requirements=(
        "The launch has a thread for each four elements, in blocks of 256.",
        "`x`, `y` and `out` begin at multiples of 16 bytes; `n` is any number.",
        "The machine code loads and stores 128 bits at a time.",
    ),
    problem=_add_problem(vector_launch),
    reference=_add_reference,
    # Whole warps of whole float4s first: what is counted there has no tail in it.
    cases=(
        vector_case(2048),
        *CASES,
        vector_case(4),
        vector_case(1026),
        vector_case(1027),
    ),
    hidden=hidden_lengths(),
    tolerance=Tolerance(factor=1.0),
    near_misses=(
        NearMiss(
            "tail forgotten",
            _first(lambda n: n // 4 * 4),
            "The last n % 4 elements are missing: they do not fill a float4, so "
            "they need scalar loads of their own.",
        ),
        NearMiss(
            "one lane of four",
            _every_fourth,
            "Only every fourth element is written: add all four lanes, .x, .y, .z "
            "and .w.",
        ),
        NearMiss(
            "one element a thread",
            _first(lambda n: vector_launch(n).grid[0] * THREADS),
            "The launch has a thread for four elements, and each thread adds only "
            "one: three quarters are missing.",
        ),
        *WRONG_OPERANDS,
    ),
    hints=(
        "`reinterpret_cast<const float4*>(x)` is the same address, read 16 bytes at"
        " a time. Its element `k` holds `x[4 * k]` to `x[4 * k + 3]`.",
        "There are `n / 4` whole `float4`s: the threads below that number take one "
        "each. What is left are the elements from `4 * (n / 4)` on, at most three.",
        "`float4 p = reinterpret_cast<const float4*>(x)[thread];` the same for `y`;"
        " then store `make_float4(p.x + q.x, ...)`. For the tail: `int last = 4 * "
        "(n / 4) + thread;` and if `last < n`, add that one element.",
    ),
    onward="Two float4s a thread, both loaded before either is added: does it help?",
    counts=(
        Count("sectors_per_request", "global", "load", at_most=16.5, ideal=16.0),
        Count("sectors_per_request", "global", "store", at_most=16.5, ideal=16.0),
    ),
    structure=(
        Structure(
            holds=("LDG.E.128", "STG.E.128"),
            message="The values are right, and the machine code holds no 128-bit "
            "load and store (LDG.E.128, STG.E.128): four separate floats are four "
            "instructions. Read and write through a float4 pointer.",
        ),
    ),
    speed=timed({"bronze": 0.75, "silver": 0.88, "gold": 0.95}),
)

EXERCISES = (
    ADD_ONE,
    VECTOR_ADD,
    SAXPY,
    SCALE_OFFSET,
    VECTOR_ADD_TRITON,
    VECTOR_ADD_VEC4,
)
