"""The ladder: the sum of everything in one launch."""

from __future__ import annotations

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Exercise,
    Launch,
    Output,
    Outputs,
    Problem,
    Speed,
    Structure,
    Tolerance,
)
from autograder.exercises.reduction.shared import (
    FACTOR,
    SHARES,
    THREADS,
    draw_values,
    magnitude,
    vector_case,
)
from autograder.ideals import barriers, moves

# Eight blocks of 256 threads on each SM of an H200: as many as fit at once.
MOST_BLOCKS = 1056
# So that a small case has several blocks: a block has four float4s a thread.
PER_BLOCK = 16 * THREADS
# Cases of their own: more blocks than a block has threads; and two blocks whose threads
# go round several times with four float4s.
MANY = range(266_243, 267_000)
MANY_BLOCKS = 260
FEW = 26_000
FEW_BLOCKS = 2


def _blocks(n: int) -> int:
    """Return the blocks that add n elements up; one at least."""
    if n in MANY:
        return MANY_BLOCKS
    if n == FEW:
        return FEW_BLOCKS
    return min(MOST_BLOCKS, max(1, -(-n // PER_BLOCK)))


def _problem(case: Case, generator: torch.Generator) -> Problem:
    n = case.sizes["n"]
    return Problem(
        {"x": draw_values(n, case.regime, generator), "out": None, "n": n},
        {"out": Output((1,), torch.float32)},
        Launch((_blocks(n),), (THREADS,)),
    )


def _scale(arguments: Arguments) -> Outputs:
    return {"out": magnitude(tensor(arguments, "x"), 0).view(1)}


def _reference(arguments: Arguments) -> Outputs:
    return {"out": tensor(arguments, "x").double().sum().view(1)}


SUM_ALL = Exercise(
    id="sum_all",
    title="The sum of everything, in one launch",
    kind="ladder",
    points=30,
    language="cuda",
    entry="kernel",
    name="sum_all",
    source="solutions/reduction/single_pass.cu",
    goal="Add n floats up in a single launch, with the same bits every time: as "
    "close to the read bandwidth as you can.",
    requirements=(
        "Up to 1,056 blocks of 256 threads: many elements a thread; n is any number, "
        "and x begins at a multiple of 16 bytes.",
        "The block that comes last adds the partial sums up and writes out[0]; the "
        "next launch must find everything ready.",
        "No float is added by an atomic: the order of the sum must not depend on who "
        "comes first.",
        "128-bit loads; each element is loaded once.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(
        # First: a counter that nobody sets back must not reach its number of blocks.
        Case("n = 266,243, more blocks than a block has threads", {"n": MANY[0]}),
        vector_case(32_768),
        vector_case(20_001, "shifted"),
        vector_case(9_002),
        vector_case(4_095, "shifted"),
        vector_case(1_023),
        vector_case(255, "shifted"),
        vector_case(3),
        vector_case(1),
        vector_case(0),
        vector_case(5_000, "special"),
        Case("n = 26,000, two blocks alone", {"n": FEW}),
    ),
    tolerance=Tolerance(FACTOR, length=lambda case: case.sizes["n"], scale=_scale),
    hints=(
        "Two problems: a block's sum, which you have written, and who adds the sums of "
        "the blocks up. Blocks come in any order, and no barrier holds them all.",
        "Each block writes its sum to partials, then counts itself: atomicAdd("
        "&arrived, 1) returns how many came before. Who gets gridDim.x - 1 is the "
        "last, and all the partial sums are there, if each block put a "
        "__threadfence() between the two.",
        "Thread 0: partials[blockIdx.x] = sum;  __threadfence();  last = atomicAdd("
        "&arrived, 1u) == gridDim.x - 1;  into a __shared__ bool;  barrier;  if "
        "(last): all threads read partials with __ldcg, b = threadIdx.x, + blockDim.x, "
        "…;  sum_block;  thread 0 writes out[0] and sets arrived back to 0.",
    ),
    onward="Who is faster: more blocks, or more loads on the way in each thread?",
    counted=1,
    counts=(*moves(writes=None, width=16), barriers(3.25, 6)),
    structure=(
        Structure(
            holds=("LDG.E.128", "SHFL"),
            message="The values are right, and the machine code lacks 128-bit loads "
            "(LDG.E.128) or shuffles (SHFL). Read x through a float4 pointer.",
        ),
        Structure(
            lacks=("REDG.E.ADD.F32", "RED.E.ADD.F32", "ATOMG.E.ADD.F32"),
            message="The values are right, and a float is added by an atomic: blocks "
            "come in another order each time, and the last bits with them. Leave "
            "partial sums, and let the last block add them up.",
        ),
    ),
    speed=Speed(
        peer="torch.sum",
        run_peer=lambda arguments: tensor(arguments, "x").sum(),
        case=vector_case(2**28),
        bytes_moved=lambda case: 4 * case.sizes["n"],
        # Four loads on their way reach 1.05 on an H200; one at a time, 0.6 of a copy.
        bands={"bronze": 0.55, "silver": 0.80, "gold": 0.93},
        reads_only=True,
    ),
    shares=SHARES,
)
