"""An exercise that ranks of one group run together, graded as any other is."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hostile import fails
from small_exercises import give_prints, make_exercise

from autograder.exercise import (
    Arguments,
    Case,
    Count,
    Exercise,
    Output,
    Outputs,
    Problem,
    Structure,
)
from autograder.judge.judge import Judge
from autograder.submission.submitted import Cells
from autograder.worker import landlock


def _problem(case: Case, generator: torch.Generator) -> Problem:
    ranks, n = case.sizes["ranks"], case.sizes["n"]
    x = torch.randn(ranks, n, generator=generator)
    weight = torch.randn(n, generator=generator)
    return Problem(
        {"x": x, "weight": weight, "by": 3},
        {"out": Output((ranks, n), torch.float32)},
        ranks=ranks,
        replicated=("weight",),
    )


def _passed_on(arguments: Arguments) -> Outputs:
    x, weight = arguments["x"], arguments["weight"]
    assert isinstance(x, torch.Tensor) and isinstance(weight, torch.Tensor)
    return {"out": x.roll(1, 0).double() * weight * arguments["by"]}


def _case(ranks: int, n: int) -> Case:
    return Case(f"{ranks} ranks, n = {n}", {"ranks": ranks, "n": n})


RING = make_exercise(
    "ring_step",
    entry="ranks",
    problem=_problem,
    reference=_passed_on,
    cases=(_case(2, 5), _case(3, 1)),
    hidden=lambda g: [_case(2, 0), _case(2, 300_000)],
    structure=(
        Structure(runs_no=("allgather",), message="Send it to the neighbour alone."),
    ),
    counts=(
        Count("sent bytes", ideal=20, times=1),
        Count("messages", ideal=1, times=1),
    ),
    prelude="import torch\nimport torch.distributed as dist\n",
)
give_prints(
    RING,
    own=(
        "Each rank returns its own x: what its neighbour sent is lost.",
        lambda a: {"out": a["x"] * a["weight"] * a["by"]},
    ),
)
BEGIN = """# exercise: ring_step
def ring_step(x, weight, by):
    me, n = dist.get_rank(), dist.get_world_size()
    got = torch.empty_like(x)
"""
RIGHT = (
    BEGIN
    + """    sent = dist.isend(x, (me + 1) % n)
    dist.recv(got, (me - 1) % n)
    sent.wait()
    return got * weight * by
"""
)


def graded(judge: Judge, cell: str, exercise: Exercise = RING) -> Any:
    return judge.grade(exercise, Cells({"ring_step": cell}))


def test_what_ranks_pass_on_is_right(judge: Judge) -> None:
    result = graded(judge, RIGHT)
    assert result.passed, result.message
    assert (result.earned, result.words) == (10.0, "correct (CPU)")
    # Of five floats, once: that each rank sends.
    said = "20 sent bytes (ideal 20), 1 messages (ideal 1)"
    assert result.gate("counts").message == said
    assert graded(judge, BEGIN + "    raise NotImplementedError\n").earned == 0.0


def test_what_is_sent_twice_costs_points(judge: Judge) -> None:
    once = RIGHT.removeprefix(BEGIN).removesuffix("    return got * weight * by\n")
    assert once in RIGHT
    result = graded(judge, RIGHT.replace(once, 2 * once))
    assert (result.earned, result.words) == (7.5, "correct, moves too much")
    assert "It takes 40 sent bytes; the ideal is 20" in result.message


def test_a_wrong_value_names_its_rank(judge: Judge) -> None:
    fails(
        graded(judge, RIGHT.replace("* by", "* by + me")),
        "With 2 ranks, n = 5: on rank 1, out[0] is",
    )
    own = graded(judge, RIGHT.replace("return got", "return x"))
    fails(own, "Each rank returns its own x")


def test_ranks_that_wait_for_each_other_are_told(judge: Judge) -> None:
    both_first_receive = """    dist.recv(got, (me - 1) % n)
    dist.send(x, (me + 1) % n)
    return got * weight * by
"""
    result = graded(judge, BEGIN + both_first_receive)
    fails(
        result,
        "no rank goes on: rank 0 waits in recv for rank 1 on line 5, rank 1 waits in "
        "recv for rank 0 on line 5.",
        "timeout",
    )
    gone = BEGIN + "    if me == 0: dist.recv(got, 1)\n    return got * weight * by\n"
    fails(
        graded(judge, gone),
        "rank 0 waits in recv for rank 1 on line 5, rank 1 has returned.",
        "timeout",
    )


@pytest.mark.parametrize(
    ("line", "says", "status"),
    [
        (
            "while me == 1: pass",
            "it is on line 5. Does the loop around it end? Meanwhile rank 0 waits in ",
            "timeout",
        ),
        ("if me == 1: x[9]", "on rank 1: IndexError", "failed"),
        ("if me == 1: exit(3)", "on rank 1: the cell called exit (3)", "failed"),
        (
            "import os\n    if me == 1: os._exit(3)",
            "rank 1 ended before it returned (with exit code 3)",
            "failed",
        ),
        (
            "import os\n    if me == 1: os.kill(os.getpid(), 11)",
            "rank 1 ended before it returned (by SIGSEGV)",
            "failed",
        ),
        (
            "if me == 1: got = got[:1]",
            "rank 1 ended before it returned (by SIGABRT). Is a tensor received into "
            "one that is shorter?",
            "failed",
        ),
        (
            "if me == 1: weight = weight.double()",
            "ring_step returned a float64 tensor of shape (5,) on rank 1; wanted "
            "out, a float32 tensor of shape (5,).",
            "failed",
        ),
    ],
)
def test_what_one_rank_does_is_told_of_it(
    judge: Judge, line: str, says: str, status: str
) -> None:
    result = graded(judge, RIGHT.replace("    sent =", f"    {line}\n    sent ="))
    fails(result, says, status)


def test_an_operation_that_does_the_exercise_is_seen(judge: Judge) -> None:
    gathered = """    every = [torch.empty_like(x) for _ in range(n)]
    dist.all_gather(every, x)
    return every[me - 1] * weight * by
"""
    fails(graded(judge, BEGIN + gathered), "Send it to the neighbour alone.")


def test_ranks_reach_each_other_and_nobody_else(judge: Judge) -> None:
    there = """    import socket
    socket.create_connection(("192.0.2.1", 80), timeout=1)
"""
    result = graded(judge, BEGIN + there + RIGHT.removeprefix(BEGIN))
    fails(result, "OSError: [Errno 101] Network is unreachable")


@pytest.mark.skipif(landlock.version() < 4, reason="nothing here forbids to connect")
def test_without_a_network_of_its_own_the_machine_is_told_of(judge: Judge) -> None:
    request = {"op": "prepare", "prelude": "", "cells": [], "name": "f"}
    with judge.server.spawn(private=False, loopback=True) as worker:
        answer, _ = worker.ask({**request, "entry": "ranks"}, deadline_s=20)
    assert answer["kind"] == "toolchain"
    assert "this machine gives workers no network of their own" in answer["message"]
