"""Chapter 15: other rings that are right, and some that are not the exercise."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from edited import graded

from autograder.authoring.regions import cell_source
from autograder.exercises import all_exercises
from autograder.judge import Judge

EXERCISES = all_exercises()
STEP, RING = EXERCISES["ring_step"], EXERCISES["ring_all_reduce"]
DEADLOCK = EXERCISES["ring_deadlock"]


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
