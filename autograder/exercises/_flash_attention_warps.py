"""Chapter 9's exercises for warps: tensor cores, and a merge over lanes."""

from __future__ import annotations

import math

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Count,
    Exercise,
    Launch,
    NearMiss,
    Outputs,
    Problem,
    Speed,
    Structure,
)
from autograder.exercises._flash_attention import (
    HALF_TOLERANCE,
    HEAD_DIM,
    STEM,
    TOLERANCE,
    case_of,
    hidden_shapes,
    kernel_problem,
    loop_mistakes,
    reference,
    scale_of,
    weights_of,
)

# --- flash_wmma -------------------------------------------------------------------

WMMA_KEYS = 64


def _wmma_problem(case: Case, generator: torch.Generator) -> Problem:
    arguments, outputs = kernel_problem(case, generator, torch.float16)
    grid = (-(-case.sizes["q_len"] // 64), case.sizes["heads"])
    return Problem(arguments, outputs, Launch(grid, (128,)))


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


def _first_keys(arguments: Arguments) -> Outputs:
    """Return what the first 16 keys of each tile add, of all weights."""
    keys = torch.arange(tensor(arguments, "k").shape[-2])
    weights = weights_of(arguments) * (keys % WMMA_KEYS < 16)
    return {"out": weights @ tensor(arguments, "v").double()}


_HALF_ROW = 2 * HEAD_DIM

FLASH_WMMA = Exercise(
    id="flash_wmma",
    stem=STEM,
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
    ),
    problem=_wmma_problem,
    reference=reference,
    cases=(
        case_of(128, 128, heads=2),
        case_of(70, 77),
        case_of(33, 130),
        case_of(1, 1),
        case_of(64, 192, "rising"),
    ),
    hidden=lambda generator: (
        case for case in hidden_shapes(generator) if case.regime != "large"
    ),
    tolerance=HALF_TOLERANCE,
    near_misses=(
        *(
            miss
            for miss in loop_mistakes(WMMA_KEYS, scaled=True, half=True)
            if miss.name == "sum not rescaled"
        ),
        NearMiss(
            "keys for values",
            lambda arguments: reference({**arguments, "v": arguments["k"]}),
            "The weights are multiplied with the keys: the tile's values begin KEYS "
            "rows further on, at tiles[KEYS].",
        ),
        NearMiss(
            "first 16 keys",
            _first_keys,
            "Of each tile the first 16 keys alone are added: KEYS / 16 products stand "
            "along the keys.",
        ),
    ),
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
        Count(
            "bytes",
            "global",
            "load",
            at_most=2 * (128 + 2 * 2 * 128) * _HALF_ROW,
            ideal=2 * (128 + 2 * 2 * 128) * _HALF_ROW,
        ),
        Count(
            "bytes",
            "global",
            "store",
            at_most=2 * 128 * _HALF_ROW,
            ideal=2 * 128 * _HALF_ROW,
        ),
        Count("barriers", "shared", "store", at_most=5, ideal=5),
        # 64 x 128 scores of 64 numbers, and as much again for the values.
        Count("products", "shared", "load", at_least=256, ideal=256),
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

# --- wrong_rescale (detective) ----------------------------------------------------


def _detective_problem(case: Case, generator: torch.Generator) -> Problem:
    arguments, outputs = kernel_problem(case, generator)
    del arguments["q_len"]
    return Problem(arguments, outputs, Launch((case.sizes["q_len"],), (32,)))


def _merged(arguments: Arguments, how: str) -> Outputs:
    """Merge 32 lanes' partial results with a mistake, as the kernel's tree does."""
    q, k, v = (tensor(arguments, n).float() for n in ("q", "k", "v"))
    scores = q @ k.mT * scale_of(arguments)
    rest = -k.shape[-2] % 32
    scores = torch.nn.functional.pad(scores, (0, rest), value=-math.inf)
    v = torch.nn.functional.pad(v, (0, 0, 0, rest))
    heads, q_len = scores.shape[:2]
    lanes = scores.reshape(heads, q_len, -1, 32)
    top = lanes.amax(2)
    lowest = -math.inf if how == "empty" else -3e38
    weights = torch.exp(lanes - top.clamp(min=-3e38)[:, :, None])
    weight = weights.sum(2)
    values = v.reshape(heads, 1, -1, 32, v.shape[-1])
    total = (weights[..., None] * values).sum(2)
    for step in (16, 8, 4, 2, 1):
        other = torch.arange(32) ^ step
        higher = torch.maximum(top, top[..., other]).clamp(min=lowest)
        mend = torch.exp(top - higher) if how != "never" else torch.ones_like(top)
        if how == "own":
            weight, total = (
                (weight + weight[..., other]) * mend,
                (total + total[..., other, :]) * mend[..., None],
            )
        else:
            both = mend if how != "weight" else torch.ones_like(mend)
            mended = weight * both, total * mend[..., None]
            weight = mended[0] + mended[0][..., other]
            total = mended[1] + mended[1][..., other, :]
        top = higher
    # A thread stores the elements d with d % 32 == its lane.
    d = torch.arange(total.shape[-1])
    return {"out": total[..., d % 32, d] / weight[..., d % 32]}


WRONG_RESCALE = Exercise(
    id="wrong_rescale",
    stem=STEM,
    title="The merge that passed its test",
    kind="detective",
    points=20,
    language="cuda",
    entry="kernel",
    name="wrong_rescale",
    source="autograder/answers/flash_attention/wrong_rescale.cu",
    goal="Mend a kernel that splits the keys of a query over a warp's lanes, and "
    "merges what they found.",
    requirements=(
        "Blocks of 32 threads, a query each; right for every kv_len of 1 and more.",
        "Lanes that have no key at all take part in the merge, with weight 0.",
    ),
    problem=_detective_problem,
    reference=reference,
    cases=(
        case_of(6, 64),
        case_of(3, 77),
        case_of(5, 20),
        case_of(1, 1),
        case_of(4, 96, "rising"),
        case_of(4, 64, "large"),
    ),
    hidden=lambda generator: (
        case_of(1 + n % 4, 1 + case.sizes["kv_len"], case.regime)
        for n, case in enumerate(hidden_shapes(generator))
    ),
    tolerance=TOLERANCE,
    near_misses=(
        NearMiss(
            "as it was",
            lambda arguments: _merged(arguments, "own"),
            "What comes from the other lane is still multiplied by this lane's factor: "
            "it is relative to the other lane's maximum, and needs that lane's.",
        ),
        NearMiss(
            "never mended",
            lambda arguments: _merged(arguments, "never"),
            "Nothing is rescaled: two lanes' sums are relative to two maxima, and are "
            "added as if they were to one.",
        ),
        NearMiss(
            "weight not rescaled",
            lambda arguments: _merged(arguments, "weight"),
            "The weighted values are rescaled and the weights' sum is not: both are "
            "relative to the maximum.",
        ),
        NearMiss(
            "lanes without keys",
            lambda arguments: _merged(arguments, "empty"),
            "Two lanes that have no key meet, and -INFINITY minus -INFINITY is NaN: "
            "keep the floor of -FLT_MAX under the maximum.",
        ),
    ),
    hints=(
        "Give all keys the same score, and the kernel is right. Give one key a higher "
        "score. Which lanes' contributions are then multiplied by what?",
        "Each lane's sums are relative to its own maximum. `mend` takes them to the "
        "common one, and it is a lane's own factor: what a neighbour sends needs the "
        "neighbour's.",
        "Mend first, exchange then: mine = weight * mend, and weight becomes mine plus "
        "the other lane's mine, by __shfl_xor_sync; the same for each sum[d].",
    ),
    onward="The same merge joins blocks that share a long row of keys: chapter 10's "
    "decode.",
)
