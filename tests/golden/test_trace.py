"""The trace against an H200's counters and sanitizers: ``h200.json``."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelwright as kw
from kernelwright.emulator.toolchain import find_compiler
from kernelwright.trace import TraceReport
from tests.golden.cases import BROKEN, CASES, CLEAN, Case

TRUTH: dict[str, Any] = json.loads((Path(__file__).parent / "h200.json").read_text())
KERNELS = TRUTH["kernels"]

_UNROLLED = (
    "nvcc runs the loop eight or four iterations at a time, then two, then one, so "
    "that lanes of different trip counts meet at other iterations than the source's: "
    "test_disagreements.py computes the GPU's counts from that"
)

_ONE_STORE = (
    "nvcc makes one store of the two, at the end, and there is where all lanes meet: "
    "what stands behind the loop runs for the lanes of each round that they leave in"
)

# Where the GPU's counters differ from the trace: what the trace says instead, and why.
# Of global memory sectors per request, of shared memory wavefronts in all.
DISAGREEMENTS: dict[tuple[str, str], tuple[float, str]] = {
    ("matmul_register_blocked", "shared_load"): (
        32768,
        "nvcc joins four neighbouring loads of `left` into one of 16 bytes, which "
        "takes two wavefronts where four loads take four",
    ),
    ("uneven_loop", "global_load"): (4.0, _UNROLLED),
    ("sparse_rows", "global_load"): (13.528, _UNROLLED),
    ("return_from_the_loop", "global_load"): (6.017, _ONE_STORE),
    ("return_from_the_loop", "global_store"): (1.913, _ONE_STORE),
    ("search", "global_load"): (
        11.374,
        "nvcc loads wanted[i] once before the loop, the trace in every iteration: the "
        "sectors of the loads that remain are the same",
    ),
}

if find_compiler().is_clang:
    # It runs these loops as nvcc does, being built on the same compiler.
    del DISAGREEMENTS["sparse_rows", "global_load"]
    del DISAGREEMENTS["search", "global_load"]
    del DISAGREEMENTS["return_from_the_loop", "global_load"]
    del DISAGREEMENTS["return_from_the_loop", "global_store"]

# What a broken kernel must be reported for, and the source that the report must name.
OUTSIDE, RACE, FRESH = "out of bounds", "race", "uninitialised read"
_MMA = "kw::cp_async<16>(&stage."
EXPECTED: dict[str, tuple[str, tuple[str, ...]]] = {
    "one_past_the_end": (OUTSIDE, ("if (i <= n) out[i]",)),
    "missing_guard": (OUTSIDE, ("    out[i] = x[i];",)),
    "before_the_start": (OUTSIDE, ("x[i - 1] + x[i]",)),
    "far_away": (OUTSIDE, ("(1LL << 36)",)),
    "shared_past_the_end": (OUTSIDE, ("i < reach",)),
    "into_the_next_array": (OUTSIDE, ("left[reach] = 3.0f",)),
    "from_the_array_before": (OUTSIDE, ("right[(int)threadIdx.x - 1]",)),
    "dynamic_past_the_end": (OUTSIDE, ("tile[threadIdx.x + 32]",)),
    "misaligned": ("misaligned", ("const float4*>(x",)),
    "reads_its_output": (FRESH, ("out[i] += x[i]",)),
    "shared_unwritten": (FRESH, ("out[threadIdx.x] = tile[threadIdx.x];",)),
    "matmul_without_first_barrier": (
        RACE,
        ("left[threadIdx.y][threadIdx.x] =", "sum +="),
    ),
    "matmul_without_second_barrier": (
        RACE,
        ("left[threadIdx.y][threadIdx.x] =", "sum +="),
    ),
    "sum_without_barrier": (RACE, ("part[threadIdx.x] += ",)),
    "histogram_without_atomics": (RACE, ("local[data[i]] += 1",)),
    "reversed_without_barrier": (
        RACE,
        ("= x[threadIdx.x];", "tile[255 - threadIdx.x]"),
    ),
    "global_race": (RACE, ("out[0] = blockIdx.x",)),
    "divergent_barrier": ("divergent barrier", ("__syncthreads();",)),
    "early_exit": ("early exit", ("__syncthreads();",)),
    "absent_lane": ("absent lane", ("__shfl_down_sync",)),
    "layer_norm_without_barrier_1": (RACE, ("slots[warp] = v", "return slots[0]")),
    "layer_norm_without_barrier_2": (RACE, ("slots[warp] = v", "slots[lane]")),
    "layer_norm_without_barrier_3": (RACE, ("slots[0] = v", "return slots[0]")),
    "flash_attention_without_barrier_1": (RACE, ("key_tile[i / D]", "* key_tile[key]")),
    "flash_attention_without_barrier_2": (RACE, ("* key_tile[key]", "key_tile[i / D]")),
    "gemm_mma_without_barrier_1": (RACE, (_MMA + "a", "kw::ldmatrix(left")),
    "gemm_mma_without_barrier_2": (RACE, (_MMA + "a", "kw::ldmatrix(left")),
}


ROLLED = tuple(case for case in CLEAN if case.file == "divergent_rolled.cu")


@functools.cache
def traced(case: Case) -> TraceReport:
    """Trace all blocks of a case."""
    module = kw.cuda.compile(case.source, name=case.file, backend="emulator")
    tracer = module[case.kernel].trace.options(blocks="all", unwritten=case.unwritten)
    given = [a if isinstance(a, np.ndarray) else a.item() for a in case.draw()]
    return tracer[case.grid, case.block, case.shared](*given)


def named(cases: tuple[Case, ...]) -> list[Any]:
    """Give each case its own test id."""
    return [pytest.param(case, id=case.name) for case in cases]


@pytest.mark.parametrize("case", named(CLEAN))
def test_a_clean_kernel_has_no_problem(case):
    traced(case).assert_clean()


def sectors_on_gpu(counters: dict[str, float], which: str) -> float:
    """Return the sectors of all loads or stores, asynchronous copies among the loads.

    Where there are such copies, what their instructions fetched: the counter of the
    pipe's loads takes them for something else (test_disagreements.py).
    """
    if which == "global_load" and counters["async_copies"]:
        return counters["load_sectors"] + counters["async_sectors"]
    return counters[f"{which}_sectors"]


@pytest.mark.parametrize("case", named(CLEAN))
@pytest.mark.parametrize("which", ["global_load", "global_store"])
def test_sectors_a_request_are_the_gpus(case, which):
    counters = KERNELS[case.name]["counters"]
    requests = counters[f"{which}_requests"]
    if not requests:
        assert getattr(traced(case), which).requests == 0
        return
    on_gpu = sectors_on_gpu(counters, which) / requests
    here = getattr(traced(case), which).sectors_per_request
    tolerance = 0.05 if case.kind == "divergent" else 0.01
    if (case.name, which) in DISAGREEMENTS:
        ours, _ = DISAGREEMENTS[case.name, which]
        assert here == pytest.approx(ours, abs=1e-3)
        assert here != pytest.approx(on_gpu, rel=tolerance), (
            "they agree: drop the entry"
        )
    else:
        assert here == pytest.approx(on_gpu, rel=tolerance)


@pytest.mark.parametrize("case", named(CLEAN))
@pytest.mark.parametrize("which", ["shared_load", "shared_store"])
def test_shared_wavefronts_are_the_gpus(case, which):
    # In all, not a request: the GPU's requests count instructions whose lanes are all
    # switched off, and nvcc joins loads.
    on_gpu = KERNELS[case.name]["counters"][f"{which}_wavefronts"]
    here = getattr(traced(case), which).wavefronts
    if (case.name, which) in DISAGREEMENTS:
        assert here == DISAGREEMENTS[case.name, which][0]
        assert here != on_gpu, "they agree: drop the entry"
    else:
        assert here == on_gpu


# Divergent kernels whose requests the GPU counts otherwise, and why. Of the others
# every request is the GPU's.
OTHER_REQUESTS = {
    "two_branches": "nvcc makes one load and one store of the two branches'",
    "sparse_rows": _UNROLLED,
    "search": "nvcc loads wanted[i] once before the loop",
    "return_from_the_loop": _ONE_STORE,
}
if find_compiler().is_clang:
    for name in ("search", "two_branches", "return_from_the_loop"):
        del OTHER_REQUESTS[name]


@pytest.mark.parametrize("case", named(CLEAN))
def test_requests_to_global_memory_are_the_gpus(case):
    counters = KERNELS[case.name]["counters"]
    report = traced(case)
    alike = (
        report.global_load.requests == counters["global_load_requests"]
        and report.global_store.requests == counters["global_store_requests"]
    )
    assert alike != (case.name in OTHER_REQUESTS)


@pytest.mark.parametrize("case", named(ROLLED))
def test_lanes_that_part_and_meet_make_the_gpus_requests_to_the_sector(case):
    # nvcc leaves these loops as the source has them: all that counts is where the lanes
    # of a warp meet again.
    if case.name in OTHER_REQUESTS:
        assert case.name == "return_from_the_loop"  # see test_disagreements.py
        return
    counters = KERNELS[case.name]["counters"]
    report = traced(case)
    for which in ("global_load", "global_store"):
        found = getattr(report, which)
        assert found.requests == counters[f"{which}_requests"]
        assert found.sectors == counters[f"{which}_sectors"]


@pytest.mark.parametrize("case", named(BROKEN))
def test_a_broken_kernel_is_reported_with_its_lines(case):
    kind, snippets = EXPECTED[case.name]
    lines = case.source.splitlines()
    report = traced(case)
    of_kind = [p for p in report.problems if p.kind == kind]
    assert of_kind, [p.message for p in report.problems]
    for problem in of_kind:
        text = [lines[line - 1] for line in problem.lines]
        if all(any(snippet in found for found in text) for snippet in snippets):
            return
    pytest.fail(f"none names {snippets}: {[p.message for p in of_kind]}")


# What mends each kind, as its message must say.
MENDS = {
    OUTSIDE: "keep every index inside of it",
    "misaligned": "begin at a multiple of 16 bytes",
    RACE: "a __syncthreads() b",  # between the two, or behind one of them
    FRESH: "before",
    "divergent barrier": "move it out of the branch",
    "early exit": "Let none return before it",
    "absent lane": "let them come too",
}
OTHERS = {
    # A lane reads what it itself should have written: no barrier is missing.
    "shared_unwritten": ("let some thread write it before",),
    # Its blocks race among each other too; where they run in step, that is all they do.
    "global_race": ("check the index", "blocks run in any order"),
}


@pytest.mark.parametrize("case", named(BROKEN))
def test_a_broken_kernels_message_says_what_mends_it(case):
    kind, _ = EXPECTED[case.name]
    mends = OTHERS.get(case.name, (MENDS[kind],))
    of_kind = [p.message for p in traced(case).problems if p.kind == kind]
    assert of_kind
    for message in of_kind:
        assert any(mend in message for mend in mends), message


def test_only_the_barrier_that_synccheck_convicts_is_divergent():
    # A GPU counts threads that have returned as arrived, and so does synccheck.
    for name in ("divergent_barrier", "early_exit"):
        convicted = KERNELS[name]["sanitizer"]["synccheck"]["errors"] > 0
        case = next(case for case in BROKEN if case.name == name)
        kinds = {p.kind for p in traced(case).problems}
        assert kinds == {"divergent barrier" if convicted else "early exit"}


def test_every_kernel_that_a_sanitizer_convicts_is_convicted_here():
    for case in BROKEN:
        verdicts = KERNELS[case.name]["sanitizer"]
        if any(verdict["errors"] for verdict in verdicts.values()):
            assert traced(case).problems, case.name


def test_a_histogram_whose_values_come_out_right_is_still_reported():
    case = next(c for c in BROKEN if c.name == "histogram_without_atomics")
    module = kw.cuda.compile(case.source, name=case.file, backend="emulator")
    data, bins, count = case.draw()
    module[case.kernel][case.grid, case.block](data, bins, count.item())
    np.testing.assert_array_equal(bins, np.bincount(data, minlength=256))
    assert any(p.kind == RACE for p in traced(case).problems)


def test_the_golden_set_is_large_enough_and_complete():
    assert len(CLEAN) >= 30
    assert {case.name for case in CASES} == set(KERNELS)
    assert {case.name for case in BROKEN} == set(EXPECTED)
    for key in ("device", "driver", "ncu", "compute_sanitizer", "date", "command"):
        assert TRUTH[key]
