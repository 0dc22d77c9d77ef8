"""Ranks that reach each other's memory: what runs, and what a trace says of it."""

from __future__ import annotations

import pytest
import torch

import kernelwright as kw
from kernelwright.errors import ArgumentError, KernelTimeout, LaunchError
from kernelwright.trace.report import TraceReport

SUM = """
__global__ void sum_of_all(float* const* x, int* const* flags, float* out,
                           int rank, int ranks, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, t = threadIdx.x;
    if (i < n) x[rank][i] += 1.0f;
    __threadfence_system();
    __syncthreads();
    if (t < ranks) atomicExch_system(&flags[t][gridDim.x * rank + blockIdx.x], 1);
    if (t < ranks)
        while (!atomicAdd_system(&flags[rank][gridDim.x * t + blockIdx.x], 0)) {}
    __threadfence_system();
    __syncthreads();
    if (i < n) {
        float sum = 0.0f;
        for (int r = 0; r < ranks; ++r) sum += x[r][i];
        out[i] = sum;
    }
}
"""
WRITES, TELLS, LOOKS, READS = 5, 8, 10, 15


class Ranks:
    """What some ranks give a kernel: rank r has r, and every flag is 0."""

    def __init__(self, count: int, n: int, blocks: int, gpus: int = 0) -> None:
        homes = [f"cuda:{r % gpus}" if gpus else "cpu" for r in range(count)]
        self.x = [torch.full((n,), float(r), device=d) for r, d in enumerate(homes)]
        self.flags = [
            torch.zeros(count * blocks, dtype=torch.int32, device=d) for d in homes
        ]
        self.out = [torch.zeros(n, device=d) for d in homes]
        self.arguments = [
            (self.x, self.flags, self.out[r], r, count, n) for r in range(count)
        ]
        self.right = [torch.full((n,), count * (count + 1) / 2)] * count


def traced(source: str, count: int = 2, blocks: int = 1) -> TraceReport:
    ranks = Ranks(count, 40, blocks)
    kernel = kw.cuda.compile(source, backend="emulator")["sum_of_all"]
    return kernel.trace.on_ranks[blocks, 64](*ranks.arguments)


@pytest.mark.parametrize(("count", "blocks"), [(1, 1), (2, 1), (4, 3), (5, 2)])
def test_ranks_wait_for_each_other(count: int, blocks: int) -> None:
    kernel = kw.cuda.compile(SUM, backend="emulator")["sum_of_all"]
    n = 64 * blocks - 7
    for launch in (kernel.on_ranks, kernel.trace.on_ranks):
        ranks = Ranks(count, n, blocks)
        report = launch[blocks, 64](*ranks.arguments)
        assert all(map(torch.equal, ranks.out, ranks.right))
        assert torch.equal(ranks.x[0], torch.ones(n))
        if report is not None:
            report.assert_clean()
            assert report.blocks_traced == count * blocks


@pytest.mark.parametrize(
    ("source", "lines", "words"),
    [
        (
            SUM.replace("    __threadfence_system();\n", "", 1),
            {WRITES, READS - 1},
            "the one that writes calls __threadfence_system()",
        ),
        (
            SUM.replace("__threadfence_system();", "__threadfence();", 1),
            {WRITES, READS},
            "between ranks a fence is __threadfence_system()",
        ),
        (
            SUM.replace(
                "    __threadfence_system();\n    __syncthreads();\n    if (i",
                "    __syncthreads();\n    if (i",
            ),
            {WRITES, READS - 1},
            "a flag that was seen does not hold back what is read behind it",
        ),
        (
            SUM.replace("{}\n    __threadfence_system();", "{}\n    __threadfence();"),
            {WRITES, READS},
            "call __threadfence_system() between the two here, too",
        ),
        (
            SUM.replace("atomicExch_system", "atomicExch"),
            {TELLS, LOOKS},
            "use that one, as atomicAdd_system() for atomicAdd()",
        ),
        (
            SUM.replace("atomicAdd_system", "atomicAdd"),
            {TELLS, LOOKS},
            "use that one, as atomicAdd_system() for atomicAdd()",
        ),
    ],
)
def test_what_reaches_its_own_gpu_only_is_told(
    source: str, lines: set[int], words: str
) -> None:
    told = [
        problem
        for problem in traced(source).problems
        if set(problem.lines) == lines and words in problem.message
    ]
    assert told and {problem.kind for problem in told} == {"race"}
    assert "of rank 0" in told[0].message and "of rank 1" in told[0].message


def test_blocks_of_one_rank_need_no_more_than_before() -> None:
    source = """
    __global__ void pass_on(int* value, int* flag, int* out) {
        if (blockIdx.x == 0) {
            *value = 7;
            __threadfence();
            atomicExch(flag, 1);
        } else {
            while (!atomicAdd(flag, 0)) {}
            *out = *value;
        }
    }
    """
    kernel = kw.cuda.compile(source, backend="emulator")["pass_on"]
    given = [[torch.zeros(1, dtype=torch.int32) for _ in range(3)] for _ in range(2)]
    kernel.trace.on_ranks[2, 1](*given).assert_clean()
    assert [int(out) for *_, out in given] == [7, 7]


def test_a_flag_that_nobody_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELWRIGHT_DEADLINE_S", "0.5")
    source = SUM.replace("if (t < ranks) atomic", "if (t < rank) atomic")
    kernel = kw.cuda.compile(source, backend="emulator")["sum_of_all"]
    with pytest.raises(
        KernelTimeout, match=r"of rank \d.*waits for what no rank tells"
    ):
        kernel.on_ranks[1, 64](*Ranks(2, 40, 1).arguments)


def test_what_is_no_list_of_tensors_is_refused() -> None:
    kernel = kw.cuda.compile(SUM, backend="emulator")["sum_of_all"]
    (x, flags, out, *rest), _ = Ranks(2, 40, 1).arguments
    for wrong, words in (
        (x[0], "a pointer to pointers takes a list of tensors"),
        ([x[0].double(), x[1]], "float memory is float32"),
    ):
        with pytest.raises(ArgumentError, match=words):
            kernel.on_ranks[1, 64]((wrong, flags, out, *rest))
    with pytest.raises(ArgumentError, match="takes a list of arguments for each rank"):
        kernel.on_ranks[1, 64](x[0], out)
    with pytest.raises(LaunchError, match="have to run at once"):
        kernel.on_ranks[9, 64](*Ranks(2, 600, 9).arguments)


@pytest.mark.gpu
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ranks_of_this_machine_s_gpus(count: int) -> None:
    kernel = kw.cuda.compile(SUM)["sum_of_all"]
    for _ in range(20):
        ranks = Ranks(count, 64 * 3 - 7, 3, torch.cuda.device_count())
        kernel.on_ranks[3, 64](*ranks.arguments)
        assert all(map(torch.equal, (o.cpu() for o in ranks.out), ranks.right))
