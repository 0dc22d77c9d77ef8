"""Chapter 15: other rings that are right, and some that are not the exercise."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from edited import graded

from autograder.exercises import all_exercises
from autograder.judge.judge import Judge
from autograder.regions import cell_source

EXERCISES = all_exercises()
STEP, RING = EXERCISES["ring_step"], EXERCISES["ring_all_reduce"]
DEADLOCK, ONE_SHOT = EXERCISES["ring_deadlock"], EXERCISES["one_shot_all_reduce"]


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(seed=5, device="cpu") as made:
        yield made


def _between(exercise, begin: str, end: str) -> str:
    cell = cell_source(exercise, solved=True)
    return cell[cell.index(begin) : cell.index(end)]


def test_a_step_may_be_taken_in_other_ways(judge):
    body = _between(STEP, "        sending =", "    return got")
    receive_first = """\
        coming = dist.irecv(got, (me - 1) % n)
        dist.send(x, (me + 1) % n)
        coming.wait()
"""
    batched = """\
        both = [dist.P2POp(dist.isend, x, (me + 1) % n),
                dist.P2POp(dist.irecv, got, (me - 1) % n)]
        for one in dist.batch_isend_irecv(both):
            one.wait()
"""
    for other in (receive_first, batched):
        assert graded(judge, STEP, (body, other)) == ""


def test_the_last_rank_alone_may_receive_first(judge):
    assert graded(judge, DEADLOCK, ("me % 2 == 0", "me < n - 1")) == ""


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ("    dist.all_reduce(out)\n", "use messages alone"),
        (
            "    dist.reduce(out, 0)\n    dist.broadcast(out, 0)\n",
            "use messages alone",
        ),
        (
            """\
    for other in range(n):
        if other != me:
            sending = dist.isend(x, other)
            got = torch.empty_like(x)
            dist.recv(got, other)
            sending.wait()
            out += got
""",
            "sent bytes",
        ),
    ],
    ids=["collective", "two collectives", "all to all"],
)
def test_what_is_no_ring_is_told_so(judge, other, told):
    body = _between(RING, "    for step in", "    return out")
    assert told in graded(judge, RING, (body, other))


SUMS = "    for (int i = threadIdx.x; i < n; i += blockDim.x) {\n        float sum"
WAIT = """\
        while (atomicAdd_system(&signs[rank][peer], 0) < call) {
        }
"""
BY_ONE_THREAD = """\
    if (threadIdx.x == 0) {
        for (int r = 0; r < ranks; ++r) {
            atomicExch_system(&signs[r][rank], call);
        }
        for (int r = 0; r < ranks; ++r) {
            while (atomicCAS_system(&signs[rank][r], 0, 0) < call) {
            }
        }
    }
"""
FENCES_OF_ONE = """\
    __syncthreads();
    if (threadIdx.x < ranks) {
        __threadfence_system();
        atomicExch_system(&signs[threadIdx.x][rank], call);
        while (atomicOr_system(&signs[rank][threadIdx.x], 0) != call) {
        }
        __threadfence_system();
    }
    __syncthreads();
"""
# Whoever has told all others of its row may look at what came by itself.
EACH_ROW_WHEN_IT_COMES = """\
    if (threadIdx.x < ranks) {
        atomicExch_system(&signs[threadIdx.x][rank], call);
    }
    for (int r = 0; r < ranks; ++r) {
        if (threadIdx.x == 0) {
            while (atomicAdd_system(&signs[rank][r], 0) != call) {
            }
        }
        __threadfence_system();
        __syncthreads();
    }
"""


def test_signs_may_be_set_and_seen_in_other_ways(judge):
    told = _between(ONE_SHOT, "    int peer = threadIdx.x;", "    // And no number")
    fenced = _between(ONE_SHOT, "    // All that", SUMS)
    for old, new in (
        (told, BY_ONE_THREAD),
        (told, EACH_ROW_WHEN_IT_COMES),
        (fenced, FENCES_OF_ONE),
    ):
        assert graded(judge, ONE_SHOT, (old, new)) == "", new


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            "sum += boxes[rank][r * n + i];",
            "out[i] = sum += boxes[rank][r * n + i];",
            "the global stores take",
        ),
        (
            "boxes[peer][rank * n + i] = own;",
            "boxes[peer][rank * n + i] = 0; boxes[peer][rank * n + i] = own;",
            "the global stores take",
        ),
        (
            "float sum = boxes[rank][i];",
            "float sum = boxes[rank][i]; if (boxes[rank][i / 2] == 1e9f) sum = 0;",
            "the global loads take",
        ),
        (
            "int i = threadIdx.x; i < n; i += blockDim.x) {\n        float sum",
            "int i = threadIdx.x / 2; i < n; i += blockDim.x / 2) {\n        float sum",
            "threads writes",
        ),
    ],
    ids=["stored twice", "sent twice", "read twice", "by two threads"],
)
def test_one_shot_is_read_and_written_once(judge, old, new, told):
    found = graded(judge, ONE_SHOT, (old, new))
    assert found.startswith("counts: failed") and told in found


def test_who_waits_for_one_sign_alone_is_told(judge):
    """The first sign says nothing of the others' rows."""
    found = graded(judge, ONE_SHOT, (WAIT, f"        if (peer == 0) {WAIT.strip()}\n"))
    assert "race" in found and "until it is set" in found
