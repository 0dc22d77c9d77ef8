"""Races: each on its lines, with what puts its two accesses in order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from tests.golden.cases import KERNELS as GOLDEN

TESTS = Path(__file__).parents[3]
BARRIER = "__syncthreads();"


def without_barrier(source, number):
    """Blank one barrier; its line stays."""
    places = [m.start() for m in re.finditer(re.escape(BARRIER), source)]
    at = places[number]
    return source[:at] + ";".rjust(len(BARRIER)) + source[at + len(BARRIER) :]


def lines_with(source, *texts):
    return {
        number
        for number, line in enumerate(source.splitlines(), 1)
        if any(text in line for text in texts)
    }


@pytest.mark.parametrize("number", [0, 1])
def test_every_deleted_barrier_of_the_tiled_matmul_is_reported(trace, number):
    whole = (TESTS / "kernels" / "matmul_tiled.cu").read_text()
    source = without_barrier(whole, number)
    a, b, c = torch.randn(3, 48, 48)
    report = trace(source, "matmul_tiled", (3, 3), (16, 16), a, b, c, 48, 48, 48)
    reading = lines_with(source, "sum += a_tile")
    writing = lines_with(source, "_tile[threadIdx.y][threadIdx.x] =")
    races = [set(p.lines) for p in report.problems if p.kind == "race"]
    assert all(race & reading and race & writing for race in races)
    assert len(races) == 2  # a_tile and b_tile
    clean = trace(whole, "matmul_tiled", (3, 3), (16, 16), a, b, c, 48, 48, 48)
    clean.assert_clean()
    torch.testing.assert_close(c, a @ b, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kernel", ["sum_interleaved", "sum_sequential"])
@pytest.mark.parametrize("number", [0, 1])
def test_every_deleted_barrier_of_a_reduction_is_reported(trace, kernel, number):
    whole = (GOLDEN / "reductions.cu").read_text()
    begin = whole.index(kernel)
    source = whole[:begin] + without_barrier(whole[begin:], number)
    report = trace(source, kernel, 4, 256, torch.randn(1024), torch.zeros(4))
    update = lines_with(source, "] += part[")
    first = lines_with(source, "part[threadIdx.x] = x[")
    races = [set(p.lines) for p in report.problems if p.kind == "race"]
    assert races
    assert all(race <= update | first for race in races)
    assert any(race & update for race in races)


ROUNDS = """__global__ void k(const float* x, float* out, int n) {
    __shared__ float part[64];
    float sum = 0.0f;
    for (int i = 0; i < n; ++i) {
        part[threadIdx.x] = x[i];
        FIRST
        sum += part[threadIdx.x ^ REACH];
        SECOND
    }
    out[threadIdx.x] = sum;
}"""


@pytest.mark.parametrize(
    ("first", "second", "reach", "mend"),
    [
        ("", BARRIER, "32", "put a __syncthreads() between the two, or"),
        (
            BARRIER,
            "",
            "32",
            "the __syncthreads() on line 6 stands between the two in one round of the "
            "loop, or one call of the function, so one of them belongs to the next: "
            "put a __syncthreads() behind line 7 too, before line 5 comes again",
        ),
        # Whose lanes run in step meet in the next round alone.
        ("__syncwarp();", "", "1", "put a __syncwarp() behind line 7 too"),
        ("__syncwarp();", "", "32", "put a __syncthreads() between the two, or"),
        # One that only some rounds have orders no round.
        ("if (i % 2) __syncthreads();", "", "32", "put a __syncthreads() between the"),
        ("if (i % 2) { __syncthreads(); }", "", "32", "put a __syncthreads() between"),
    ],
)
def test_a_race_with_the_next_round_is_told_from_one_within_a_round(
    trace, first, second, reach, mend
):
    source = ROUNDS.replace("FIRST", first).replace("SECOND", second)
    source = source.replace("REACH", reach)
    report = trace(source, "k", 1, 64, torch.randn(8), torch.zeros(64), 8)
    (race,) = (p for p in report.problems if p.kind == "race")
    assert mend in race.message


def test_barriers_within_a_warp_order_its_lanes_alone(trace):
    source = """__global__ void k(const float* x, float* out) {
    __shared__ float part[64];
    part[threadIdx.x] = x[threadIdx.x];
    __syncwarp();
    int base = threadIdx.x & ~REACH;
    out[threadIdx.x] = part[base + (threadIdx.x + 1 & REACH)];
}"""
    x, out = torch.randn(64), torch.zeros(64)
    trace(source.replace("REACH", "31"), "k", 1, 64, x, out).assert_clean()
    across = trace(source.replace("REACH", "63"), "k", 1, 64, x, out)
    assert {p.kind for p in across.problems} >= {"race"}


@pytest.mark.parametrize(
    ("body", "mend"),
    [
        ("if (threadIdx.x == 0) sum[0] += x[blockIdx.x];", "or use an atomic"),
        ("sum[blockIdx.x % 2] = x[blockIdx.x];", "give each block elements of its own"),
        ("sum[threadIdx.x % 2] = threadIdx.x;", "so check the index"),
        ("sum[0] = threadIdx.x + sum[0];", "or use an atomic"),
        ("if (threadIdx.x < 5) __syncwarp();", "(5 to 31)"),
        ("if (threadIdx.x % 31) __syncwarp();", "(0, 31)"),
        ("if (threadIdx.x % 31) __syncwarp();", "let them come too"),
        ("if (threadIdx.x < 5) __syncthreads();", "keep it out of every if"),
    ],
)
def test_a_problem_says_what_mends_it(trace, body, mend):
    source = f"__global__ void k(const float* x, float* sum) {{ {body} }}"
    report = trace(source, "k", 4, 32, torch.randn(4), torch.zeros(4))
    assert any(mend in problem.message for problem in report.problems), report


@pytest.mark.parametrize(
    ("body", "threads", "mend"),
    [
        (
            "part[t] = x[t]; out[t] = part[t ^ 1];",
            64,
            "put a __syncwarp() between the two, lanes of one warp (a __syncthreads() "
            "between them would do too)",
        ),
        (
            "part[t] = x[t]; __syncthreads(); for (int s = 16; s; s /= 2) "
            "if (t % 32 < s) part[t] += part[t + s]; out[t] = part[0];",
            32,
            "put a __syncwarp() between its rounds",
        ),
        # One warp alone is in order here, and lanes of one warp race beside others.
        (
            "part[t] = x[t]; __syncwarp(); out[t] = part[t ^ 32];",
            64,
            "put a __syncthreads() between the two, or",
        ),
        (
            "part[t] = x[t]; out[t] = part[63 - t] + part[t ^ 1];",
            64,
            "put a __syncthreads() between the two, or",
        ),
        (
            "part[t] = x[t]; __syncthreads(); for (int s = 64; s; s /= 2) "
            "if (t < s) part[t] += part[t + s]; out[t] = part[0];",
            128,
            "put a __syncthreads() between its rounds",
        ),
        # A barrier stands there, and who is ahead comes to its other side first.
        (
            "int i = 4; while (i--) { part[t] = x[t] + i; __syncthreads(); "
            "out[t] = part[t ^ 1] + part[63 - t]; }",
            64,
            "the __syncthreads() on line 6 stands between the two in one round of the "
            "loop, or one call of the function, so one of them belongs to the next: "
            "put a __syncthreads() behind line 7 too, before line 5 comes again",
        ),
        (
            "part[t] = x[t]; if (x[0] > 9) __syncthreads(); out[t] = part[63 - t];",
            64,
            "put a __syncthreads() between the two, or",
        ),
    ],
)
def test_a_race_names_the_smallest_barrier_that_mends_it(trace, body, threads, mend):
    statements = body.replace("; ", ";\n")
    source = f"""__global__ void k(const float* x, float* out) {{
    __shared__ float part[128];
    int t = threadIdx.x;
    {statements}
}}"""
    report = trace(source, "k", 1, threads, torch.randn(128), torch.zeros(128))
    races = [p for p in report.problems if p.kind == "race"]
    assert any(mend in problem.message for problem in races), report
    for problem in races:
        one_warp = len({x // 32 for x, _, _ in problem.threads}) == 1
        assert ("put a __syncwarp()" in problem.message) == one_warp


def test_a_race_in_one_warp_does_not_hide_what_another_race_needs(trace):
    source = """__global__ void k(const float* x, float* out) {
    __shared__ float one[64], all[64];
    int t = threadIdx.x;
    one[t] = x[t];
    all[t] = x[t];
    out[t] = one[t ^ 1] + all[63 - t];
}"""
    report = trace(source, "k", 1, 64, torch.randn(64), torch.zeros(64))
    races = [p for p in report.problems if p.kind == "race"]
    assert {problem.buffer for problem in races} == {"one", "all"}
    for problem in races:
        assert "put a __syncthreads() between the two, or" in problem.message


def test_the_same_value_twice_is_no_race_and_another_is(trace):
    source = """__global__ void k(int* out) {
    __shared__ int flag;
    flag = VALUE;
    __syncthreads();
    out[threadIdx.x] = flag;
}"""
    out = torch.zeros(64, dtype=torch.int32)
    trace(source.replace("VALUE", "7"), "k", 1, 64, out).assert_clean()
    differ = trace(source.replace("VALUE", "threadIdx.x"), "k", 1, 64, out)
    assert [(p.kind, p.lines, p.buffer) for p in differ.problems] == [
        ("race", (3,), "flag")
    ]


def test_a_copy_that_meets_a_reader_is_told_of_its_wait(trace):
    source = """#include <kw/cp_async.cuh>
__global__ void k(const float* x, float* out) {
    __shared__ float tile[64];
    FIRST
    kw::cp_async<4>(&tile[threadIdx.x], &x[threadIdx.x]);
    kw::cp_async_wait_all();
    LAST
}"""
    reads = "out[threadIdx.x] = tile[threadIdx.x ^ 32];"
    for first, last, said in (
        (
            "",
            reads,
            "reads it on line 7, thread (32, 0, 0) of block (0, 0, 0) copies "
            "into it on line 5",
        ),
        ("", reads, "a __syncthreads() behind that wait, not before it"),
        (
            f"tile[threadIdx.x] = 0; __syncthreads(); {reads}",
            "",
            "between the reading and the next copy into the same place",
        ),
    ):
        edited = source.replace("FIRST", first).replace("LAST", last)
        report = trace(edited, "k", 1, 64, torch.randn(64), torch.zeros(64))
        race = next(p for p in report.problems if p.kind == "race")
        assert said in race.message


def test_lanes_that_store_at_once_are_told_of_their_index(trace):
    source = """__global__ void k(float* out) {
    __shared__ float tile[32];
    for (int i = 0; i < 2; ++i) tile[INDEX] = threadIdx.x + 32 * i;
    out[threadIdx.x] = tile[0];
}"""
    for index, at_once in (("threadIdx.x / 2", True), ("threadIdx.x ^ i", False)):
        report = trace(source.replace("INDEX", index), "k", 1, 32, torch.zeros(32))
        race = next(p for p in report.problems if p.lines == (3,))
        assert ("which no barrier can part" in race.message) == at_once
        assert ("between its rounds" in race.message) != at_once
