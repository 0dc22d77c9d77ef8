"""Chapter 14: unusual ragged products that are right, and some that do too much."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from edited import graded

from autograder.exercises import all_exercises
from autograder.judge.judge import Judge
from autograder.regions import cell_source

GEMM = all_exercises()["grouped_gemm"]
CELL = cell_source(GEMM, solved=True)
WALK = CELL[
    CELL.index("    expert, begin, end = 0, 0") : CELL.index("    rows = begin")
]
PRODUCT = CELL[CELL.index("        w_ptr +=") : CELL.index("        tl.store(")]
LAUNCH = CELL[CELL.index("    M, N, K = 128") : CELL.index("    return out")]


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(seed=5, device="cpu") as made:
        yield made


# All offsets at once; the tiles before each expert's, and how many lie at or below.
AT_ONCE = """\
    whose = tl.arange(0, 64)
    ends = tl.load(offsets_ptr + whose, mask=whose < experts, other=height)
    begins = tl.load(offsets_ptr + whose - 1,
                     mask=(whose > 0) & (whose <= experts), other=0)
    begins = tl.where(whose > experts, height, begins)
    counts = tl.cdiv(ends - begins, M)
    upto = tl.cumsum(counts, 0)
    expert = tl.minimum(tl.sum((upto <= tile).to(tl.int32), 0), experts)
    mine = whose == expert
    begin = tl.sum(tl.where(mine, begins, 0), 0)
    end = tl.sum(tl.where(mine, ends, 0), 0)
    tile -= tl.sum(tl.where(mine, upto - counts, 0), 0)
"""
# As many tiles for each expert as if all rows were its own: most find nothing to do.
BY_EXPERT = """\
    down = tl.cdiv(height, M)
    expert, tile = tile // down, tile % down
    begin = tl.load(offsets_ptr + expert - 1, mask=expert > 0, other=0)
    end = tl.load(offsets_ptr + expert, mask=expert < experts, other=height)
"""
# On the device, and by torch: nothing waits.
LISTED = """\
    M, N, K = 64, 64, 32
    height_too = torch.full_like(offsets[:1], height)
    ends = torch.cat([offsets, height_too])
    begins = torch.cat([height_too * 0, offsets])
    upto = ((ends - begins + M - 1) // M).cumsum(0)
    tiles = triton.cdiv(height, M) + experts
    tile = torch.arange(tiles, device=x.device)
    whose = torch.searchsorted(upto, tile, right=True).clamp(max=experts)
    first = begins[whose] + (tile - upto[whose]) * M
    first += (ends - begins + M - 1)[whose] // M * M
    of_tile = torch.stack([whose, first, ends[whose]], 1).int()
    grouped_kernel[(tiles * triton.cdiv(columns, N),)](
        x, weights, of_tile, out, height, inner, columns, experts,
        M=M, N=N, K=K)
"""
FROM_LIST = """\
    expert = tl.load(offsets_ptr + 3 * tile)
    begin = tl.load(offsets_ptr + 3 * tile + 1)
    end = tl.load(offsets_ptr + 3 * tile + 2)
    tile = 0
"""


@pytest.mark.parametrize(
    "edits",
    [
        ((WALK, AT_ONCE),),
        (
            (WALK, BY_EXPERT),
            (
                "triton.cdiv(height, M) + experts",
                "triton.cdiv(height, M) * (experts + 1)",
            ),
        ),
        (("M, N, K = 128, 256, 64", "M, N, K = 256, 64, 32"),),
        (("M, N, K = 128, 256, 64", "M, N, K = 16, 64, 16"),),
    ],
    ids=["at once", "by expert", "tall tiles", "low tiles"],
)
def test_a_tile_may_be_found_in_other_ways(judge, edits):
    assert graded(judge, GEMM, *edits) == ""


# Each tile of the rows by every expert's matrix, of which one is kept.
ALL_MATRICES = """\
        acc = tl.zeros([M, N], tl.float32)
        for e in range(experts):
            own = tl.where(e == expert, 1.0, 0.0)
            for k in tl.range(0, inner, K):
                at = k + tl.arange(0, K)
                x = tl.load(x_ptr + x_rows + at[None, :],
                            mask=at[None, :] < inner, other=0.0)
                w = tl.load(w_ptr + (e * inner + at)[:, None] * columns
                            + cols[None, :], mask=(at[:, None] < inner)
                            & (cols[None, :] < columns), other=0.0)
                acc += tl.where(own > 0, tl.dot(x, w), 0.0)
"""
BY_THE_HOST = """\
    begin = 0
    M, N, K = 128, 64, 64
    for expert, end in enumerate(offsets.tolist() + [height]):
        one = torch.tensor([end - begin], dtype=torch.int32, device=x.device)
        some = weights[min(expert, experts - 1)]
        if end > begin:
            grouped_kernel[(triton.cdiv(end - begin, M)
                            * triton.cdiv(columns, N),)](
                x[begin:end], some, one, out[begin:end], end - begin,
                inner if expert < experts else 0, columns, 1, M=M, N=N, K=K)
        begin = end
"""


@pytest.mark.parametrize(
    ("edits", "told"),
    [
        (((PRODUCT, ALL_MATRICES),), "counts: failed"),
        (((LAUNCH, BY_THE_HOST),), "the host reads offsets"),
        (((WALK, FROM_LIST), (LAUNCH, LISTED)), "which no kernel wrote"),
    ],
    ids=["all matrices", "a launch an expert", "a list by torch"],
)
def test_what_does_too_much_is_told_so(judge, edits, told):
    assert told in graded(judge, GEMM, *edits)
