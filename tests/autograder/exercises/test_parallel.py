"""Chapter 16: unusual answers that are right, and some that send or hold too much."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import dedent, indent

import pytest
import torch
from edited import graded

from autograder.exercises import all_exercises
from autograder.judge.judge import Judge
from autograder.regions import cell_source
from autograder.worker.in_flight import _Sum

EXERCISES = all_exercises()
DDP, RING = EXERCISES["bucketed_ddp"], EXERCISES["ring_attention"]


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(seed=5, device="cpu") as made:
        yield made


def test_gradients_may_be_views_of_a_bucket_from_the_start(judge: Judge) -> None:
    # Copied in each hook, divided before they are sent, and never copied back.
    edits = (
        (
            "grads = [parameters[i].grad for i in buckets[which]]\n                "
            "sums[which] = torch.cat([grad.flatten() for grad in grads])",
            "grads = [parameters[i].grad / dist.get_world_size()"
            " for i in buckets[which]]\n                "
            "sums[which] = torch.cat([grad.flatten() for grad in grads])",
        ),
        ("mean = sums[which] / dist.get_world_size()", "mean = sums[which]"),
    )
    assert graded(judge, DDP, *edits) == ""


def test_keys_and_values_may_travel_apart(judge: Judge) -> None:
    edits = (
        ("held = torch.stack((k, v))", "held = [k.contiguous(), v.contiguous()]"),
        (
            "coming = torch.empty_like(held)",
            "coming = [torch.empty_like(t) for t in held]",
        ),
        (
            "sent = dist.isend(held, (me + 1) % n)",
            "sent = [dist.isend(t, (me + 1) % n) for t in held]",
        ),
        (
            "got = dist.irecv(coming, (me - 1) % n)",
            "got = [dist.irecv(t, (me - 1) % n) for t in coming]",
        ),
        (
            "            got.wait()\n            sent.wait()\n",
            "            for one in got + sent: one.wait()\n",
        ),
    )
    assert graded(judge, RING, *edits) == ""


def test_messages_may_be_begun_as_a_batch(judge: Judge) -> None:
    edits = (
        (
            "sent = dist.isend(held, (me + 1) % n)\n",
            "both = [dist.P2POp(dist.isend, held, (me + 1) % n),\n"
            "                    dist.P2POp(dist.irecv, coming, (me - 1) % n)]\n",
        ),
        (
            "got = dist.irecv(coming, (me - 1) % n)",
            "works = dist.batch_isend_irecv(both)",
        ),
        (
            "            got.wait()\n            sent.wait()\n",
            "            for work in works: work.wait()\n",
        ),
    )
    assert graded(judge, RING, *edits) == ""


GATHERED = """\
    me, n = dist.get_rank(), dist.get_world_size()
    every = [torch.empty(n, *t.shape) for t in (k, v)]
    for into, own in zip(every, (k, v)):
        dist.all_gather(list(into), own.contiguous())
    keys, values = (t.transpose(0, 1).flatten(1, 2) for t in every)
    scores = q @ keys.mT * q.shape[-1] ** -0.5
    rows = me * q.shape[1] + torch.arange(q.shape[1])
    later = torch.arange(keys.shape[1]) > rows[:, None]
    scores = scores.masked_fill(later & causal, -torch.inf)
    return scores.softmax(-1) @ values, scores.logsumexp(-1)
"""


def test_who_gathers_all_keys_is_told_so(judge: Judge) -> None:
    cell = cell_source(RING, solved=True)
    body = cell[cell.index("    me, n = dist") :].rstrip("\n")
    said = graded(judge, RING, (body, indent(dedent(GATHERED), "    ")))
    assert "no message came by irecv" in said


def test_a_sum_whose_buffer_was_used_again_is_lost() -> None:
    told: list[str] = []
    for written in (lambda b: b[1:2].fill_(5.0), lambda b: b.div_(2)):
        buffer = torch.ones(3)
        under_way = _Sum(buffer, torch.ones(3), lambda what, _: told.append(what))
        written(buffer)
        under_way.wait()
        assert buffer.isnan().all()
    assert told == ["wait", "wait"]
    other = torch.full((3,), torch.nan)
    _Sum(other, torch.ones(3), lambda *_: None).wait()
    assert other.tolist() == [1.0, 1.0, 1.0]
