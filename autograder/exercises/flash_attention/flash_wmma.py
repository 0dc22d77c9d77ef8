"""Both products on tensor cores."""

from __future__ import annotations

import torch

from autograder.drawing import tensor
from autograder.exercise import Arguments, Case, Exercise, Problem, Speed, Structure
from autograder.exercises.flash_attention.shared import (
    HALF_TOLERANCE,
    HEAD_DIM,
    case_of,
    kernel_problem,
    reference,
)
from autograder.ideals import barriers, moves, needed, shared


def _problem(case: Case, generator: torch.Generator) -> Problem:
    return kernel_problem(case, generator, torch.float16, threads=128)


def _sdpa(arguments: Arguments) -> object:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v = (tensor(arguments, n)[None] for n in ("q", "k", "v"))
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def _flops(case: Case) -> int:
    sizes = case.sizes
    return 4 * sizes["heads"] * sizes["q_len"] * sizes["kv_len"] * HEAD_DIM


def _bytes(case: Case) -> int:
    rows = 2 * case.sizes["q_len"] + 2 * case.sizes["kv_len"]
    return 2 * case.sizes["heads"] * rows * HEAD_DIM


FLASH_WMMA = Exercise(
    id="flash_wmma",
    title="Both products on the tensor cores",
    kind="core",
    points=20,
    language="cuda",
    entry="kernel",
    name="flash_wmma",
    source="solutions/flash_attention/wmma.cu",
    goal="Mend the sums, whose layout nobody knows, and add weights times values on "
    "the tensor cores.",
    requirements=(
        "Four warps a block, 16 queries each; the sums stay in fp32 fragments.",
        "Row `i` of a warp's sums is multiplied by `mends[warp][i]` before a tile is "
        "added.",
        "Both products run on the tensor cores (HMMA); nothing is stored but out.",
        "Rows of `weights` lie where the rows of `scores` lay: as many bytes apart.",
    ),
    problem=_problem,
    reference=reference,
    cases=(
        case_of(64, 128, heads=2),
        case_of(70, 77),
        case_of(33, 130),
        case_of(1, 1),
        case_of(64, 192, "rising"),
    ),
    tolerance=HALF_TOLERANCE,
    hints=(
        "All elements of a row get the same factor, and all lanes' fragments of one "
        "shape have the same layout. What if the factors lay in a fragment, too?",
        "kw::Sum mending; wmma::load_matrix_sync(mending, mends[warp], 0, "
        "wmma::mem_col_major) reads element (i, j) at mends[warp][i + 0 * j]: then "
        "strip.sum[d].x[i] *= mending.x[i], for all num_elements.",
        "For n = 0, 16, … below KEYS: load kw::Left<T> p from weights + n, whose rows "
        "are 2 * (KEYS + 4) apart; for each d: kw::Right<T> value from "
        "&tiles[KEYS + n][16 * d] with pitch D + PAD, and wmma::mma_sync(strip.sum[d], "
        "p, value, strip.sum[d]).",
    ),
    onward="How many of its shared-memory wavefronts are scores and weights? The last "
    "rung keeps them in registers.",
    counts=(
        *moves(times=1),
        barriers(5),
        # Scores, weights and values, each as often as need be; the sums not at all.
        *shared(3216, 3584, times=1.15),
        # 64 x 128 scores of 64 numbers, and as much again for the values.
        needed("matrix products", 256),
    ),
    structure=(
        Structure(
            holds=("HMMA",),
            message="The values are right, and no tensor core made them: the machine "
            "code holds no HMMA. Use wmma::mma_sync for weights times values too.",
        ),
    ),
    speed=Speed(
        peer="SDPA (cuDNN)",
        run_peer=_sdpa,
        case=case_of(4096, 4096, heads=32),
        bytes_moved=_bytes,
        flops=_flops,
        unit="half",
        bands={"bronze": 0.10, "silver": 0.15, "gold": 0.20},
    ),
    shares={"correct": 0.6, "counts": 0.2, "speed": 0.2},
)
