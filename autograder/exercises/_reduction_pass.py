"""Chapter 4's ladder: the sum of everything in one launch."""

from __future__ import annotations

from collections.abc import Callable

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
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
from autograder.exercises._reduction import (
    FACTOR,
    SHARES,
    STEM,
    THREADS,
    Mistake,
    draw_values,
    drawn,
    magnitude,
    vector_case,
)
from autograder.totals import barriers, moves

# --- sum_all (ladder) -------------------------------------------------------------

# Eight blocks of 256 threads on each SM of an H200: as many as fit at once.
MOST_BLOCKS = 1056
# So that a small case has several blocks: a block has four float4s a thread.
PER_BLOCK = 16 * THREADS


# A case of its own: more blocks than a block has threads, a float4 a thread.
MANY = range(266_243, 267_000)
MANY_BLOCKS = 260


def blocks_of_all(n: int) -> int:
    """Return the blocks that add n elements up; one at least."""
    if n in MANY:
        return MANY_BLOCKS
    return min(MOST_BLOCKS, max(1, -(-n // PER_BLOCK)))


def _all_problem(case: Case, generator: torch.Generator) -> Problem:
    n = case.sizes["n"]
    return Problem(
        {"x": draw_values(n, case.regime, generator), "out": None, "n": n},
        {"out": Output((1,), torch.float32)},
        Launch((blocks_of_all(n),), (THREADS,)),
    )


def _all_scale(arguments: Arguments) -> Outputs:
    return {"out": magnitude(tensor(arguments, "x"), 0).view(1)}


def _hidden_all(generator: torch.Generator) -> list[Case]:
    return [
        vector_case(drawn(generator, 2, 256)),
        vector_case(4 * drawn(generator, 300, 900) + 1, "shifted"),
        vector_case(4 * drawn(generator, 1500, 2500) + 2),
        vector_case(4 * drawn(generator, 4000, 8000) + 3, "shifted"),
        vector_case(drawn(generator, 30_000, 60_000), "shifted"),
        # Last: who leaves the counter as it is stops here somewhere in the middle.
        Case("260 blocks, more than a block has threads", {"n": MANY[0]}),
    ]


def _of_all(
    made: Callable[[torch.Tensor], torch.Tensor],
) -> Mistake:
    def output(arguments: Arguments) -> Outputs:
        return {"out": made(tensor(arguments, "x").double()).view(1)}

    return output


def _kept(
    x: torch.Tensor, keep: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """Add the elements with some indices up, and the last few, which fill no float4."""
    i = torch.arange(x.numel(), device=x.device)
    return x[keep(i) | (i >= x.numel() // 4 * 4)].sum()


def _counted(
    x: torch.Tensor, times: Callable[[torch.Tensor, int], torch.Tensor]
) -> torch.Tensor:
    """Add each float4 up so many times, by its number and the grid's threads."""
    fours = x.numel() // 4
    threads = blocks_of_all(x.numel()) * THREADS
    f = torch.arange(fours, device=x.device)
    weights = times(f, threads).double()
    sums = x[: 4 * fours].view(fours, 4).sum(1) * weights
    # What is not counted is not there, NaN or not.
    return torch.where(weights > 0, sums, 0.0).sum() + x[4 * fours :].sum()


def _whole_rounds(f: torch.Tensor, fours: int, threads: int) -> torch.Tensor:
    """Say which float4s a loop of four a round takes, where it takes whole rounds."""
    last_of_round = f % threads + (f // threads // 4 * 4 + 3) * threads
    return last_of_round < fours


def _tail_in_every_block(x: torch.Tensor) -> torch.Tensor:
    more = blocks_of_all(x.numel()) - 1
    return x.sum() + more * x[x.numel() // 4 * 4 :].sum()


def _first_of_the_tail(x: torch.Tensor) -> torch.Tensor:
    return x[: x.numel() // 4 * 4 + 1].sum()


def _tail_elsewhere(x: torch.Tensor) -> torch.Tensor:
    fours, left = divmod(x.numel(), 4)
    return x[: 4 * fours].sum() + x[fours : fours + left].sum()


SUM_ALL = Exercise(
    id="sum_all",
    stem=STEM,
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
    problem=_all_problem,
    reference=_of_all(lambda x: x.sum()),
    cases=(
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
    ),
    hidden=_hidden_all,
    tolerance=Tolerance(FACTOR, length=lambda case: case.sizes["n"], scale=_all_scale),
    near_misses=(
        NearMiss(
            "nobody is last",
            _of_all(lambda x: torch.full((), torch.nan, dtype=torch.float64)),
            "out[0] is NaN, as if no block took itself for the last one. Does one "
            "thread of each block count, and compare with gridDim.x - 1? Is the "
            "counter 0 when a launch begins? Whoever is last must set it back for the "
            "next.",
        ),
        NearMiss(
            "tail forgotten",
            _of_all(lambda x: x[: x.numel() // 4 * 4].sum()),
            "The last n % 4 elements are missing: they do not fill a float4, and need "
            "loads of their own.",
        ),
        NearMiss(
            "tail elsewhere",
            _of_all(_tail_elsewhere),
            "In the place of the last n % 4 elements others are added once more, from "
            "x[n / 4] on: n / 4 counts float4s, and the tail begins at n / 4 * 4.",
        ),
        NearMiss(
            "one float4 a thread",
            _of_all(
                lambda x: _kept(x, lambda i: i < blocks_of_all(x.numel()) * THREADS * 4)
            ),
            "Each thread added one float4, and there are more: go on by the number of "
            "threads in the grid.",
        ),
        NearMiss(
            "first block only",
            _of_all(
                lambda x: _kept(
                    x, lambda i: i // (4 * THREADS) % blocks_of_all(x.numel()) == 0
                )
            ),
            "Only the first block's elements are in the sum: add all the partial sums "
            "up, and then what the threads of the last block have of them (sum_block).",
        ),
        NearMiss(
            "tail in every block",
            _of_all(_tail_in_every_block),
            "Every block adds the last n % 4 elements: let them be one block's, or go "
            "by the thread's number in the grid.",
        ),
        NearMiss(
            "first of the tail",
            _of_all(_first_of_the_tail),
            "Of the last n % 4 elements only the first is in the sum: there may be "
            "three.",
        ),
        NearMiss(
            "stride of a block",
            _of_all(
                lambda x: _counted(
                    x,
                    lambda f, threads: (f // THREADS + 1).clamp(max=threads // THREADS),
                )
            ),
            "float4s are counted several times: each block goes on by its own 256 "
            "threads, over what other blocks have too. Go on by gridDim.x * "
            "blockDim.x.",
        ),
        NearMiss(
            "whole rounds only",
            _of_all(
                lambda x: _counted(
                    x,
                    lambda f, threads: _whole_rounds(f, x.numel() // 4, threads),
                )
            ),
            "A thread that has fewer than four float4s left adds none of them: behind "
            "the loop over four at a time one over single ones is needed.",
        ),
        NearMiss(
            "three of four",
            _of_all(
                lambda x: _kept(x, lambda i: i % 4 != 3),
            ),
            "Of each float4 only x, y and z are in the sum: .w is missing.",
        ),
    ),
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
