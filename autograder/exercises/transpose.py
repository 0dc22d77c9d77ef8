"""Chapter 2: coalescing, tiles, bank conflicts, and structures of arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from autograder.drawing import draw_vector, index, only, tensor, vector_case
from autograder.exercise import (
    Arguments,
    Case,
    Exercise,
    Launch,
    NearMiss,
    Output,
    Outputs,
    Problem,
    Structure,
)
from autograder.exercises._transpose import (
    CASES,
    EXACT,
    MISTAKES,
    SHARES,
    STEM,
    WITHOUT_CONFLICTS,
    draw_values,
    gathered,
    hidden,
    hidden_in_fours,
    matrix_case,
    problem_with,
    reference,
    timed,
)
from autograder.totals import barriers, moves, once_through_shared

THREADS = 256

# --- copy_coalesced ---------------------------------------------------------------


def _copy_problem(case: Case, generator: torch.Generator) -> Problem:
    x = draw_vector(case, generator)
    n = x.numel()
    return Problem(
        {"x": x, "out": None, "n": n},
        {"out": Output((n,), torch.float32)},
        Launch((max(1, -(-n // (4 * THREADS))),), (THREADS,)),
    )


def _copied(
    written: Callable[[torch.Tensor, int], torch.Tensor],
) -> Callable[[Arguments], Outputs]:
    """Return the mistake that copies only where ``written(index, n)`` says."""

    def output(arguments: Arguments) -> Outputs:
        x = tensor(arguments, "x")
        return only(x, written(index(x), x.numel()))

    return output


def _hidden_lengths(generator: torch.Generator) -> Iterator[Case]:
    for low, high, regime in (
        (2, 256, "distinct"),
        (260, 1020, "special"),
        (1025, 5000, "distinct"),
        (5001, 9000, "large"),
    ):
        n = int(torch.randint(low, high, (), generator=generator))
        yield vector_case(n, regime)


COPY_COALESCED = Exercise(
    id="copy_coalesced",
    stem=STEM,
    title="Four elements a thread, coalesced",
    kind="warm-up",
    points=10,
    language="cuda",
    entry="kernel",
    name="copy_coalesced",
    source="solutions/transpose/coalesced_copy.cu",
    goal="Copy `n` floats with four elements a thread, so that each request of a warp "
    "touches four sectors.",
    requirements=(
        "Blocks of 256 threads; block `b` copies elements `1024 * b` to "
        "`1024 * b + 1023`, those that exist.",
        "One 4-byte load and one 4-byte store in each round of the loop.",
        "At most 4.5 sectors per request, loads and stores.",
    ),
    problem=_copy_problem,
    reference=lambda arguments: {"out": tensor(arguments, "x").double()},
    cases=(
        vector_case(4096),
        vector_case(3001),
        *(vector_case(n) for n in (1025, 1024, 255, 33, 1, 0)),
        vector_case(2500, "special"),
    ),
    hidden=_hidden_lengths,
    tolerance=EXACT,
    near_misses=(
        NearMiss(
            "one round",
            _copied(lambda i, n: i % 1024 < 256),
            "Of each 1,024 elements only the first 256 are copied: every round of the "
            "loop takes the same element. Let k move the thread on.",
        ),
        NearMiss(
            "a step of one",
            _copied(lambda i, n: i % 1024 < 259),
            "The rounds lie one element apart, so the block copies 259 of its 1,024: "
            "in each round the whole block moves on by its width, blockDim.x.",
        ),
        NearMiss(
            "block forgotten",
            _copied(lambda i, n: i < 1024),
            "Only the first 1,024 elements are copied: every block begins at the same "
            "place. Begin at `block`.",
        ),
        NearMiss(
            "guard one too tight",
            _copied(lambda i, n: i < n - 1),
            "Only the last element is missing: the guard is i < n.",
        ),
    ),
    hints=(
        "At one moment all 32 lanes of a warp run the same round `k`. Which 32 "
        "elements should they hold, so that these lie side by side?",
        "Neighbouring threads take neighbouring elements, as in chapter 1. Then the"
        " whole block moves on: how many elements has it just taken?",
        "`int i = block + k * blockDim.x + threadIdx.x;` then, if `i < n`, copy one.",
    ),
    onward="Make it four neighbours a thread, block + 4 * threadIdx.x + k, and trace "
    "it: the values stay right.",
    counts=moves(),
    shares=SHARES,
)

# --- transpose_tiled, transpose_padded --------------------------------------------

TRANSPOSE_TILED = Exercise(
    id="transpose_tiled",
    stem=STEM,
    title="Transpose through a tile",
    kind="core",
    points=20,
    language="cuda",
    entry="kernel",
    name="transpose_tiled",
    source="solutions/transpose/tiled.cu",
    goal="Transpose a `rows` x `columns` matrix so that both the loads and the stores "
    "are coalesced.",
    requirements=(
        "A block of 32 x 8 threads moves a tile of 32 x 32 elements; "
        "`blockIdx.x` counts tiles along a row of `x`, `blockIdx.y` down a column.",
        "Right for every shape; no thread reads or writes outside.",
        "At most 4.5 sectors per request, loads and stores, on whole tiles.",
    ),
    problem=problem_with((32, 8)),
    reference=reference,
    cases=CASES,
    hidden=hidden,
    tolerance=EXACT,
    near_misses=MISTAKES,
    hints=(
        "A warp should read 32 neighbours of `x` and later write 32 neighbours of "
        "`out`. These are not the same 32 elements: that is what the tile is for.",
        "Three steps: store `x`'s rows into `tile[y][x]`; wait until all threads "
        "have; write rows of `out` from columns of the tile. The tile lands at "
        "block (`blockIdx.y`, `blockIdx.x`) of `out`, whose rows have `rows` "
        "elements.",
        "For the store: `int column = blockIdx.y * 32 + threadIdx.x;` `int row = "
        "blockIdx.x * 32 + threadIdx.y;` and for `k` = 0, 8, 16, 24, if `row + k < "
        "columns && column < rows`: `out[(row + k) * rows + column] = "
        "tile[threadIdx.x][threadIdx.y + k]`.",
    ),
    onward="Take the barrier out and look at what the trace says of it.",
    counts=(*moves(), barriers(1)),
    # Conflicts in the tile have a ceiling of their own: 0.39 on an H200.
    speed=timed({"bronze": 0.20, "silver": 0.30, "gold": 0.36}),
    shares=SHARES,
)

TRANSPOSE_PADDED = Exercise(
    id="transpose_padded",
    stem=STEM,
    title="A tile without bank conflicts",
    kind="core",
    points=15,
    language="cuda",
    entry="kernel",
    name="transpose_padded",
    source="solutions/transpose/padded.cu",
    goal="Transpose as before, with one wavefront for each request to shared memory.",
    requirements=(
        "The same launch and the same shapes as for the tile.",
        "At most 4.5 sectors per request in global memory, on whole tiles.",
        "One wavefront per request in shared memory, loads and stores.",
    ),
    problem=problem_with((32, 8)),
    reference=reference,
    cases=CASES,
    hidden=hidden,
    tolerance=EXACT,
    near_misses=MISTAKES,
    hints=(
        "Element (r, c) of a tile with 32 columns is in bank `(32 * r + c) % 32`. "
        "What does that come to, when the lanes of a warp differ in r?",
        "Only the length of a row matters. Which length makes r, r + 1, r + 2, … "
        "land in different banks?",
        "`__shared__ float tile[32][33];` and everything else as before.",
    ),
    onward="Try 34 and 36 columns, and predict the wavefronts before you trace them.",
    counts=(*moves(), *WITHOUT_CONFLICTS),
    speed=timed({"bronze": 0.50, "silver": 0.65, "gold": 0.80}),
    shares=SHARES,
)

# --- transpose_swizzled (ladder) --------------------------------------------------

TRANSPOSE_SWIZZLED = Exercise(
    id="transpose_swizzled",
    stem=STEM,
    title="Sixteen bytes at a time, swizzled",
    kind="ladder",
    points=25,
    language="cuda",
    entry="kernel",
    name="transpose_swizzled",
    source="solutions/transpose/swizzled.cu",
    goal="Transpose with 128-bit loads and stores and no bank conflicts: as close to "
    "copy bandwidth as you can.",
    requirements=(
        "A block of 8 x 8 threads moves a tile of 32 x 32 floats; rows and columns "
        "are multiples of 4.",
        "`blockIdx.x` counts tiles down a column of `x` now, `blockIdx.y` along a row.",
        "Four floats at a time from `x` into the tile, and into `out`; the tile is "
        "read float by float.",
        "Per request: 16 sectors in global memory, 4 wavefronts into the tile, 1 out "
        "of it.",
    ),
    problem=problem_with((8, 8), down=True),
    reference=reference,
    cases=(
        matrix_case(64, 96),
        matrix_case(96, 64),
        matrix_case(36, 68),
        matrix_case(4, 256),
        matrix_case(32, 4),
        matrix_case(0, 8),
        matrix_case(100, 36, "special"),
    ),
    hidden=hidden_in_fours,
    tolerance=EXACT,
    near_misses=(
        NearMiss(
            "swizzled on one side",
            gathered(lambda r, c: (c, r ^ (c % 32 // 4 * 4))),
            "One side of the tile swizzles and the other does not: a group that was "
            "stored at place g ^ (r / 4) must be looked for at that place.",
        ),
        *MISTAKES,
    ),
    hints=(
        "A row of the tile is eight groups of four floats. When the lanes of a warp"
        " read a column, they are in eight different rows and in only one group of "
        "banks. Where could each row keep its groups instead?",
        "Store group `g` of row `r` at place `g ^ (r / 4)`. For one row that is "
        "another order of the same eight places; rows 4, 8, 12, … apart differ in "
        "it.",
        "In: `*reinterpret_cast<float4*>(&tile[r][4 * (group ^ (r / 4))])` = four "
        "floats of `x`. Out: thread (group, c) reads rows `4 * group + j`, j = 0 to"
        " 3, at column `4 * ((c / 4) ^ group) + c % 4`, and stores them as one "
        "`float4`.",
    ),
    onward="Do without shared memory: a 4 x 4 square a thread, turned in registers.",
    counts=(*moves(width=16), *WITHOUT_CONFLICTS),
    structure=(
        Structure(
            holds=("LDG.E.128", "STG.E.128"),
            message="The values are right, and the machine code holds no 128-bit load "
            "and store (LDG.E.128, STG.E.128). Read x and write out through float4 "
            "pointers.",
        ),
    ),
    speed=timed({"bronze": 0.70, "silver": 0.80, "gold": 0.88}),
    shares=SHARES,
)

# --- aos_to_soa (detective) -------------------------------------------------------

FIELDS = 8


def _particles_problem(case: Case, generator: torch.Generator) -> Problem:
    n = case.sizes["n"]
    aos = draw_values(n * FIELDS, case.regime, generator).view(n, FIELDS)
    return Problem(
        {"aos": aos, "soa": None, "n": n},
        {"soa": Output((FIELDS, n), torch.float32)},
        Launch((max(1, -(-n // THREADS)),), (THREADS,)),
    )


def _soa(output: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Outputs]:
    def mistaken(arguments: Arguments) -> Outputs:
        return {"soa": output(tensor(arguments, "aos"))}

    return mistaken


def _first_particles(keep: Callable[[int], int]) -> Callable[..., Outputs]:
    """Return the mistake that moves only the first ``keep(n)`` particles."""

    def moved(aos: torch.Tensor) -> torch.Tensor:
        n = aos.shape[0]
        return torch.where(torch.arange(n) < keep(n), aos.T, torch.nan)

    return _soa(moved)


def _hidden_particles(generator: torch.Generator) -> Iterator[Case]:
    for case in _hidden_lengths(generator):
        regime = "special" if case.regime == "special" else "distinct"
        yield vector_case(case.sizes["n"] // 3 + 1, regime)


AOS_TO_SOA = Exercise(
    id="aos_to_soa",
    stem=STEM,
    title="The kernel that reads everything eight times",
    kind="detective",
    points=20,
    language="cuda",
    entry="kernel",
    name="aos_to_soa",
    source="autograder/answers/transpose/aos_to_soa.cu",
    goal="Mend a kernel that is right and moves too much: from `n` particles of eight "
    "floats each to eight arrays of `n` floats.",
    requirements=(
        "Blocks of 256 threads, a thread for each particle; right for every `n`.",
        "4-byte loads and stores, at most 4.5 sectors per request on whole blocks.",
        "At most two wavefronts per request in shared memory, if you use it.",
    ),
    problem=_particles_problem,
    reference=_soa(lambda aos: aos.T.contiguous().double()),
    cases=(
        vector_case(512),
        *(vector_case(n) for n in (1009, 257, 255, 33, 1, 0)),
        vector_case(515, "special"),
    ),
    hidden=_hidden_particles,
    tolerance=EXACT,
    near_misses=(
        NearMiss(
            "not sorted",
            _soa(lambda aos: aos.reshape(aos.shape[1], aos.shape[0])),
            "soa holds the floats in the order of aos: they are copied, not sorted "
            "into fields.",
        ),
        NearMiss(
            "last block dropped",
            _first_particles(lambda n: n // THREADS * THREADS),
            "The particles of the last block, the one that is not full, are missing.",
        ),
        NearMiss(
            "last particle dropped",
            _first_particles(lambda n: n - 1),
            "Only the last particle is missing: the guard stops one too early.",
        ),
    ),
    hints=(
        "Trace it, and find the line whose sectors per request are far from the "
        "ideal. How many bytes apart are two neighbouring lanes there?",
        "The 256 particles of a block are 2,048 floats in a row. Read them in the "
        "order in which they lie; shared memory can put them in another.",
        "In: for `k` = 0 … 7, float `j = 256 * k + threadIdx.x` of the block goes "
        "to `tile[j % 8][j / 8]`. Barrier. Out: `soa[field * n + first + "
        "threadIdx.x] = tile[field][threadIdx.x]`. Rows of 260 floats keep the "
        "banks apart.",
    ),
    onward="Which of the two layouts would you want, if a kernel read one field only?",
    counts=(*moves(), *once_through_shared(16 * 1024, times=2.05)),
    # The values were right before: what it moves is the whole exercise.
    shares={"correct": 0.0, "counts": 1.0, "speed": 0.0},
)

EXERCISES = (
    COPY_COALESCED,
    TRANSPOSE_TILED,
    TRANSPOSE_PADDED,
    AOS_TO_SOA,
    TRANSPOSE_SWIZZLED,
)
