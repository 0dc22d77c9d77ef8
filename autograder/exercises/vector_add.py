"""Chapter 1: one thread an element, guard, grid stride, float4, and Triton.

Every kernel rounds each result once or twice, so the tolerances are exact bounds:
one IEEE addition errs by at most eps/2 of its result (eps = 2^-23 for fp32), and
``a * x + y`` by at most eps/2 * (|a * x| + |result|), whether or not the compiler
fuses it. A factor of 1 is therefore twice what a right answer needs, and 2^13 times
less than what an answer computed in fp16 would show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

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
    Speed,
    Structure,
    Tolerance,
)

STEM = "vector_add"
THREADS = 256
TIMED = 2**26  # floats: 268 MB an array, over four times the L2 of any GPU of today

_REGIMES = {
    "distinct": "normal values",
    "zeros": "a third of them zero",
    "large": "values near 1e37",
    "special": "NaN and Inf among them",
}


def _case(n: int, regime: str = "distinct") -> Case:
    return Case(f"n = {n:,}, {_REGIMES[regime]}", {"n": n}, regime)


def _values(n: int, regime: str, generator: torch.Generator) -> torch.Tensor:
    """Draw n floats; two draws differ at every place, and so do two elements."""
    x = torch.randn(n, generator=generator)
    if regime == "zeros":
        x[torch.rand(n, generator=generator) < 1 / 3] = 0.0
    elif regime == "large":
        x = x.clamp(-4, 4) * 1e37  # sums stay below the largest float, 3.4e38
    elif regime == "special":
        for start, value in enumerate((torch.nan, torch.inf, -torch.inf, -0.0)):
            x[start::11] = value
    return x


def _pair(case: Case, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    n = case.sizes["n"]
    x = _values(n, case.regime, generator)
    # Rolled by 5, so that NaN and Inf of one input meet numbers of the other.
    return x, _values(n, case.regime, generator).roll(5)


def _hidden(generator: torch.Generator) -> Iterator[Case]:
    """Draw awkward lengths: around a warp, around a block, and far past both."""

    def draw(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=generator))

    for regime in ("distinct", "special"):
        yield _case(draw(2, 64), regime)
    yield _case(256 * draw(1, 8) + draw(1, 4), "distinct")
    yield _case(256 * draw(1, 8) - draw(1, 4), "zeros")
    yield _case(256 * draw(1, 8), "large")
    yield _case(2 * draw(2_000, 10_000) + 1, "distinct")


def _tensor(arguments: Arguments, name: str) -> torch.Tensor:
    value = arguments[name]
    assert isinstance(value, torch.Tensor)
    return value


def _only(result: torch.Tensor, written: torch.Tensor) -> Outputs:
    """Keep the elements that a mistake writes; NaN stands for *never written*."""
    return {"out": torch.where(written, result, torch.nan)}


def _index(like: torch.Tensor) -> torch.Tensor:
    return torch.arange(like.numel(), device=like.device)


def _timed(bands: dict[str, float]) -> Speed:
    return Speed(
        peer="copy bandwidth",
        case=_case(TIMED),
        bytes_moved=lambda case: 12 * case.sizes["n"],  # x and y read, out written
        bands=bands,
    )


# A warp of 32 threads reads 32 neighbouring floats: 128 bytes, four 32-byte sectors.
_COALESCED = tuple(
    Count("sectors_per_request", "global", op, at_most=4.5, ideal=4.0)
    for op in ("load", "store")
)
# A prime of several blocks first: there every known mistake shows a face of its own.
_SIZES = (1009, 257, 255, 33, 31, 1, 0)
_CASES = (
    *(_case(n) for n in _SIZES),
    _case(1024, "zeros"),
    _case(1000, "large"),
    _case(515, "special"),
)


# --- add_one ----------------------------------------------------------------------


def exact_launch(n: int) -> Launch:
    """Return a launch of exactly n threads: the largest block up to 64 that fits."""
    threads = max(d for d in range(1, min(n, 64) + 1) if n % d == 0)
    return Launch((n // threads,), (threads,))


def _add_one_problem(case: Case, generator: torch.Generator) -> Problem:
    n = case.sizes["n"]
    x = _values(n, case.regime, generator)
    return Problem(
        {"x": x, "out": None},
        {"out": Output((n,), torch.float32)},
        exact_launch(n),
    )


def _add_one_reference(arguments: Arguments) -> Outputs:
    return {"out": _tensor(arguments, "x").double() + 1}


def _add_one_block_forgotten(arguments: Arguments) -> Outputs:
    x = _tensor(arguments, "x")
    return _only(x + 1, _index(x) < exact_launch(x.numel()).block[0])


def _add_one_hidden(generator: torch.Generator) -> Iterator[Case]:
    for regime in ("distinct", "special", "large"):
        n = int(torch.randint(100, 3000, (), generator=generator))
        yield _case(n, regime)


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
    goal="Write the body that one thread runs: out[i] = x[i] + 1 for its own i.",
    requirements=(
        "There are exactly as many threads as elements, in one or more blocks.",
        "Each thread writes one element of out, and each element is written.",
    ),
    problem=_add_one_problem,
    reference=_add_one_reference,
    cases=(
        _case(640),
        _case(32),
        _case(31),
        _case(1),
        _case(257),
        _case(1000, "special"),
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
            lambda arguments: {"out": _tensor(arguments, "x")},
            "out is x itself: the addition is missing.",
        ),
        NearMiss(
            "index added",
            lambda arguments: {
                "out": _tensor(arguments, "x") + _index(_tensor(arguments, "x"))
            },
            "Each element has its own index added, not one: out[i] = x[i] + 1.",
        ),
        NearMiss(
            "index written",
            lambda arguments: {"out": _index(_tensor(arguments, "x")) + 1.0},
            "out[i] holds i + 1: the value x[i] is wanted, not the index i.",
        ),
    ),
    hints=(
        "Every thread runs the same text. What differs between two threads is "
        "threadIdx.x, and between two blocks blockIdx.x.",
        "A block holds blockDim.x threads, so block b begins at element "
        "b * blockDim.x. The thread's own element is threadIdx.x further on.",
        "First line: int i = blockIdx.x * blockDim.x + threadIdx.x;  Second line: "
        "assign to out[i].",
    ),
    onward="Launch it with one thread too few, and look at the last element.",
    counts=_COALESCED,
)


# --- vector_add -------------------------------------------------------------------


def covering_launch(elements: int) -> Launch:
    """Return whole blocks of 256 threads that cover the elements; one at least."""
    return Launch((max(1, -(-elements // THREADS)),), (THREADS,))


def _add_problem(launch: Callable[[int], Launch] | None) -> Callable[..., Problem]:
    def problem(case: Case, generator: torch.Generator) -> Problem:
        x, y = _pair(case, generator)
        n = x.numel()
        output = {"out": Output((n,), torch.float32)}
        if launch is None:
            return Problem({"x": x, "y": y}, output)
        return Problem({"x": x, "y": y, "out": None, "n": n}, output, launch(n))

    return problem


def _add_reference(arguments: Arguments) -> Outputs:
    return {"out": _tensor(arguments, "x").double() + _tensor(arguments, "y").double()}


def _sum(arguments: Arguments) -> torch.Tensor:
    return _tensor(arguments, "x") + _tensor(arguments, "y")


def _first(count: Callable[[int], int]) -> Callable[[Arguments], Outputs]:
    """Return the mistake that writes only the first ``count(n)`` sums."""

    def output(arguments: Arguments) -> Outputs:
        total = _sum(arguments)
        return _only(total, _index(total) < count(total.numel()))

    return output


_WRONG_OPERANDS = (
    NearMiss(
        "x twice",
        lambda arguments: {"out": 2 * _tensor(arguments, "x")},
        "out is x + x: the second load reads x where y is wanted.",
    ),
    NearMiss(
        "subtracted",
        lambda arguments: {
            "out": _tensor(arguments, "x") - _tensor(arguments, "y"),
        },
        "out is x - y; wanted x + y.",
    ),
    NearMiss(
        "multiplied",
        lambda arguments: {
            "out": _tensor(arguments, "x") * _tensor(arguments, "y"),
        },
        "out is x * y; wanted x + y.",
    ),
)

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
    goal="Add two arrays of any length n: out[i] = x[i] + y[i].",
    requirements=(
        "The launch is whole blocks of 256 threads: often more threads than n.",
        "No thread reads or writes past the last element, n = 0 included.",
    ),
    problem=_add_problem(covering_launch),
    reference=_add_reference,
    cases=_CASES,
    hidden=_hidden,
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
        *_WRONG_OPERANDS,
    ),
    hints=(
        "257 elements need two blocks of 256. What should the other 255 threads "
        "of the second block do?",
        "Compute i as in add_one. Then ask whether this thread has an element at "
        "all: it has one if i is less than n.",
        "int i = ...;  if (i < n) { ... }  with the addition inside the braces.",
    ),
    onward="Time it against torch.add with kw.bench: who is faster, and why?",
    counts=_COALESCED,
    # One element a thread has its own ceiling, 0.81 on an H200; the ladder goes on.
    speed=_timed({"bronze": 0.40, "silver": 0.60, "gold": 0.75}),
)


# --- saxpy_grid_stride ------------------------------------------------------------


def fixed_launch(n: int) -> Launch:
    """Return a launch that does not follow n: most threads take several elements."""
    return Launch((8192,), (THREADS,)) if n > 2**20 else Launch((3,), (32,))


def _threads_of(n: int) -> int:
    launch = fixed_launch(n)
    return launch.grid[0] * launch.block[0]


def _saxpy_problem(case: Case, generator: torch.Generator) -> Problem:
    x, y = _pair(case, generator)
    # Between 1/2 and 3/4, the tolerance holds for a * y + x too: a near miss must
    # be known by the same bound.
    a = 0.52 + 0.2 * float(torch.rand((), generator=generator))
    n = x.numel()
    return Problem(
        {"a": a, "x": x, "y": y, "out": None, "n": n},
        {"out": Output((n,), torch.float32)},
        fixed_launch(n),
    )


def _rounded(arguments: Arguments, name: str) -> float:
    """Return a scalar as the kernel gets it: rounded to fp32."""
    value = arguments[name]
    assert isinstance(value, int | float)
    return float(torch.tensor(value, dtype=torch.float32))


def _saxpy_terms(arguments: Arguments) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = _tensor(arguments, "x").double(), _tensor(arguments, "y").double()
    return _rounded(arguments, "a") * x, y


def _saxpy_reference(arguments: Arguments) -> Outputs:
    product, y = _saxpy_terms(arguments)
    return {"out": product + y}


def _saxpy_scale(arguments: Arguments) -> Outputs:
    product, y = _saxpy_terms(arguments)
    return {"out": product.abs() + y.abs()}


def _saxpy_written(
    written: Callable[[torch.Tensor, int], torch.Tensor],
) -> Callable[[Arguments], Outputs]:
    """Return the mistake that writes only where ``written(index, n)`` says."""

    def output(arguments: Arguments) -> Outputs:
        result = _saxpy_reference(arguments)["out"].float()
        return _only(result, written(_index(result), result.numel()))

    return output


def _saxpy_swapped(arguments: Arguments) -> Outputs:
    a = _rounded(arguments, "a")
    x, y = _tensor(arguments, "x").double(), _tensor(arguments, "y").double()
    return {"out": a * y + x}


def _saxpy_unscaled(arguments: Arguments) -> Outputs:
    return {"out": _sum(arguments)}


def _saxpy_both_scaled(arguments: Arguments) -> Outputs:
    x, y = _tensor(arguments, "x").double(), _tensor(arguments, "y").double()
    return {"out": _rounded(arguments, "a") * (x + y)}


SAXPY = Exercise(
    id="saxpy_grid_stride",
    stem=STEM,
    title="saxpy with a grid-stride loop",
    kind="core",
    points=15,
    language="cuda",
    entry="kernel",
    name="saxpy",
    source="solutions/vector_add/grid_stride.cu",
    goal="Compute out[i] = a * x[i] + y[i] for any n, with any number of threads.",
    requirements=(
        "The launch does not depend on n: 3 blocks of 32 threads must do for 1,009 "
        "elements, and for 1.",
        "At every moment neighbouring threads work on neighbouring elements.",
        "Each element is computed once.",
    ),
    problem=_saxpy_problem,
    reference=_saxpy_reference,
    cases=_CASES,
    hidden=_hidden,
    tolerance=Tolerance(factor=1.0, scale=_saxpy_scale),
    near_misses=(
        NearMiss(
            "no loop",
            _saxpy_written(lambda i, n: i < _threads_of(n)),
            "Each thread takes one element and stops, so everything past the "
            "number of threads is missing. Loop: step by gridDim.x * blockDim.x "
            "while i < n.",
        ),
        NearMiss(
            "start without the block",
            _saxpy_written(lambda i, n: i % _threads_of(n) < fixed_launch(n).block[0]),
            "Every block starts at the same elements, so those of the other blocks "
            "are missing: begin at blockIdx.x * blockDim.x + threadIdx.x.",
        ),
        NearMiss(
            "last round dropped",
            _saxpy_written(lambda i, n: i < n // _threads_of(n) * _threads_of(n)),
            "The last, incomplete round is missing: go on while i < n, so that "
            "some threads make one round more than others.",
        ),
        NearMiss(
            "a on y",
            _saxpy_swapped,
            "out is a * y + x: a scales x, not y.",
        ),
        NearMiss("a forgotten", _saxpy_unscaled, "out is x + y: a is not used."),
        NearMiss(
            "a on both",
            _saxpy_both_scaled,
            "out is a * (x + y): only x is scaled.",
        ),
        *_WRONG_OPERANDS[1:],
    ),
    hints=(
        "How many threads are there in the whole grid? That is how far a thread "
        "jumps to its next element.",
        "gridDim.x is the number of blocks and blockDim.x the threads in each, so "
        "the stride is their product. Start where vector_add did.",
        "for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += "
        "gridDim.x * blockDim.x) { ... }",
    ),
    onward="Launch it with one block of one thread. It is right: how slow is it?",
    counts=_COALESCED,
    speed=_timed({"bronze": 0.40, "silver": 0.65, "gold": 0.85}),
)


# --- scale_offset (detective) -----------------------------------------------------


def _scale_problem(case: Case, generator: torch.Generator) -> Problem:
    n = case.sizes["n"]
    x = _values(n, case.regime, generator)
    # As for saxpy: in these ranges the bound holds for the near misses as well.
    scale = 0.6 + 0.3 * float(torch.rand((), generator=generator))
    offset = -0.5 - 0.08 * float(torch.rand((), generator=generator))
    return Problem(
        {"x": x, "scale": scale, "offset": offset, "out": None, "n": n},
        {"out": Output((n,), torch.float32)},
        fixed_launch(n),
    )


def _scale_reference(arguments: Arguments) -> Outputs:
    x = _tensor(arguments, "x").double()
    return {"out": _rounded(arguments, "scale") * x + _rounded(arguments, "offset")}


def _scale_magnitude(arguments: Arguments) -> Outputs:
    x = _tensor(arguments, "x").double()
    product = (_rounded(arguments, "scale") * x).abs()
    return {"out": product + abs(_rounded(arguments, "offset"))}


def _scale_written(
    written: Callable[[torch.Tensor, int], torch.Tensor],
) -> Callable[[Arguments], Outputs]:
    def output(arguments: Arguments) -> Outputs:
        result = _scale_reference(arguments)["out"].float()
        return _only(result, written(_index(result), result.numel()))

    return output


def _scale_swapped(arguments: Arguments) -> Outputs:
    scale, offset = _rounded(arguments, "scale"), _rounded(arguments, "offset")
    return {"out": offset * _tensor(arguments, "x").double() + scale}


def _offset_first(arguments: Arguments) -> Outputs:
    scale, offset = _rounded(arguments, "scale"), _rounded(arguments, "offset")
    return {"out": scale * (_tensor(arguments, "x").double() + offset)}


SCALE_OFFSET = Exercise(
    id="scale_offset",
    stem=STEM,
    title="The kernel that passed every test",
    kind="detective",
    points=15,
    language="cuda",
    entry="kernel",
    name="scale_offset",
    source="autograder/answers/vector_add/scale_offset.cu",
    goal="Mend out[i] = scale * x[i] + offset, which is right for 96 and 960 "
    "elements and wrong for 1,000.",
    requirements=(
        "Right for every n, with any number of threads, fewer elements than "
        "threads included.",
        "No thread writes past the last element.",
    ),
    problem=_scale_problem,
    reference=_scale_reference,
    cases=(_case(96), _case(960), *_CASES),
    hidden=_hidden,
    tolerance=Tolerance(factor=1.0, scale=_scale_magnitude),
    near_misses=(
        NearMiss(
            "remainder lost",
            _scale_written(lambda i, n: i < n // _threads_of(n) * _threads_of(n)),
            "Every element that is written is right, and the last ones are not "
            "written at all. Which thread owns element n - 1? What does n / threads "
            "do with a remainder?",
        ),
        NearMiss(
            "last element lost",
            _scale_written(lambda i, n: i < n - 1),
            "Only the last element is missing: the clamp stops one too early.",
        ),
        NearMiss(
            "one element a thread",
            _scale_written(lambda i, n: i < _threads_of(n)),
            "Each thread takes one element and stops: there are fewer threads than "
            "elements, so each needs a loop.",
        ),
        NearMiss(
            "scale and offset swapped",
            _scale_swapped,
            "out is offset * x + scale: the two numbers have changed places.",
        ),
        NearMiss(
            "offset scaled too",
            _offset_first,
            "out is scale * (x + offset): the offset is added after scaling.",
        ),
    ),
    hints=(
        "The sizes that pass are multiples of 96, the number of threads. Draw the "
        "launch for n = 100 and look for elements without an owner.",
        "Integer division rounds down: with n = 100 and 96 threads each chunk is 1 "
        "element, so 96 are covered. What covers the other 4?",
        "Either round the chunk up and stop every thread at n, or drop the chunks: "
        "the grid-stride loop from saxpy gives every element one owner.",
    ),
    onward="Two repairs work. Ask which one a warp's 32 loads prefer: chapter 2.",
    counts=(
        Count("sectors_per_request", "global", "load", at_most=8.0, ideal=4.0),
        Count("sectors_per_request", "global", "store", at_most=8.0, ideal=4.0),
    ),
)


# --- vector_add_triton ------------------------------------------------------------

_BLOCK = 1024  # elements a program, as the stub's launcher says
_TRITON_CASES = (*_CASES, _case(4097))

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
        "Program p adds elements p * BLOCK to (p + 1) * BLOCK - 1, those that exist.",
        "vector_add_triton(x, y) returns a new tensor, for every length, 0 included.",
    ),
    problem=_add_problem(None),
    reference=_add_reference,
    cases=_TRITON_CASES,
    hidden=_hidden,
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
        *_WRONG_OPERANDS,
    ),
    hints=(
        "A Triton program is a whole block. Its i is a vector of BLOCK indices, "
        "and its guard is a vector of booleans.",
        "i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK) and inside = i < n. "
        "Both tl.load and tl.store take mask=inside.",
        "x = tl.load(x_ptr + i, mask=inside), the same for y, then tl.store(out_ptr "
        "+ i, x + y, mask=inside). Launch: add_kernel[(triton.cdiv(n, 1024),)](x, "
        "y, out, n, BLOCK=1024), unless n is 0.",
    ),
    onward="Try BLOCK=256 and BLOCK=4096 on a GPU. Does the time care?",
    prelude="import torch\nimport kernelwright as kw\n"
    "import triton\nimport triton.language as tl\n",
    speed=_timed({"bronze": 0.60, "silver": 0.80, "gold": 0.92}),
)


# --- vector_add_vec4 (ladder) -----------------------------------------------------


def vector_launch(n: int) -> Launch:
    """Return a launch with a thread for each four elements, the last few included."""
    return covering_launch(-(-n // 4))


def _every_fourth(arguments: Arguments) -> Outputs:
    total = _sum(arguments)
    index = _index(total)
    whole = total.numel() // 4 * 4
    return _only(total, (index % 4 == 0) | (index >= whole))


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
        "x, y and out begin at multiples of 16 bytes; n is any number.",
        "The machine code loads and stores 128 bits at a time.",
    ),
    problem=_add_problem(vector_launch),
    reference=_add_reference,
    cases=(*_CASES, _case(4), _case(1026), _case(1027)),
    hidden=_hidden,
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
        *_WRONG_OPERANDS,
    ),
    hints=(
        "reinterpret_cast<const float4*>(x) is the same address, read 16 bytes at a "
        "time. Its element k holds x[4 * k] to x[4 * k + 3].",
        "There are n / 4 whole float4s: the threads below that number take one "
        "each. What is left are the elements from 4 * (n / 4) on, at most three.",
        "float4 p = reinterpret_cast<const float4*>(x)[thread]; the same for y; "
        "then store make_float4(p.x + q.x, ...). For the tail: int last = 4 * (n / "
        "4) + thread; if (last < n) add that one element.",
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
    speed=_timed({"bronze": 0.75, "silver": 0.88, "gold": 0.95}),
)

EXERCISES = (
    ADD_ONE,
    VECTOR_ADD,
    SAXPY,
    SCALE_OFFSET,
    VECTOR_ADD_TRITON,
    VECTOR_ADD_VEC4,
)
