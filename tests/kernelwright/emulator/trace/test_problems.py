"""What a kernel must not do, each on its line; and that clean kernels stay clean."""

from __future__ import annotations

import pytest
import torch

from kernelwright.emulator.shared_memory import BANKS, GAP, with_gaps
from kernelwright.emulator.toolchain import find_compiler
from kernelwright.errors import CompileError, TraceProblem


@pytest.mark.parametrize("index", ["n", "-1", "1 << 28", "-(1 << 20)"])
def test_a_wild_access_is_caught_before_it_happens(trace, index):
    source = f"""__global__ void k(const float* x, float* out, int n) {{
    if (threadIdx.x == 3) out[{index}] = x[0];
    else out[threadIdx.x] = x[threadIdx.x];
}}"""
    data = torch.zeros(96)
    x, out = torch.ones(32), data[32:64]
    report = trace(source, "k", 1, 32, x, out, 32)
    (problem,) = report.problems
    assert (problem.kind, problem.lines) == ("out of bounds", (2,))
    assert problem.threads == ((3, 0, 0),)
    if index != "1 << 28":  # so far away that no buffer is nearer than another
        assert problem.buffer == "out"
        assert problem.index == eval(index, {"n": 32})
    assert data[:32].eq(0).all()
    assert data[64:].eq(0).all()
    assert out.sum() == 31  # the other threads came to their end


def test_the_sides_of_a_matrix_are_said_where_an_index_leaves_it(trace):
    source = """__global__ void k(const float* a, float* out) {
    out[threadIdx.x] = a[threadIdx.x * 7];
}"""
    report = trace(source, "k", 1, 8, torch.ones(8, 5), torch.zeros(8))
    (problem,) = report.problems
    assert "outside of a, which has 40 elements (8 x 5)" in problem.message


def test_the_local_variable_of_another_thread_is_out_of_reach(trace):
    source = """__global__ void k(float* out) {
    __shared__ float* lent;
    float mine = threadIdx.x + 1;
    if (threadIdx.x == 0) lent = &mine;
    __syncthreads();
    out[threadIdx.x] = *lent;
}"""
    out = torch.zeros(32)
    report = trace(source, "k", 1, 32, out)
    (problem,) = report.problems
    assert (problem.kind, problem.lines, problem.count) == ("out of bounds", (6,), 31)
    assert out.tolist() == [1] + [0] * 31


NEIGHBOURS = """__global__ void k(float* out, int at) {
    __shared__ float left[32], right[32], last[32];
    left[threadIdx.x] = right[threadIdx.x] = last[threadIdx.x] = 1;
    __syncthreads();
    STORE
    __syncthreads();
    out[threadIdx.x] = left[threadIdx.x] + right[threadIdx.x] + last[threadIdx.x];
}"""


@pytest.mark.parametrize("name", ["left", "right", "last"])
@pytest.mark.parametrize("at", [32, 33, 64, 2000, -1, -32, -2000])
def test_one_shared_array_does_not_run_into_the_next(trace, name, at):
    # One thread alone does it, once: nothing but the address tells what was meant.
    source = NEIGHBOURS.replace("STORE", f"if (threadIdx.x == 3) {name}[at] = 2;")
    out = torch.zeros(32)
    report = trace(source, "k", 1, 32, out, at)
    (problem,) = report.problems
    assert (problem.kind, problem.lines) == ("out of bounds", (5,))
    assert problem.threads == ((3, 0, 0),)
    assert problem.buffer in ("left", "right", "last")
    near = -32 <= at <= 64
    if near:
        assert (problem.buffer, problem.index) == (name, at)
        assert f"writes {name}[{at}], outside of {name}, which has 32" in (
            problem.message
        )


@pytest.mark.parametrize("at", [32, 100, 4000, 1 << 20, -1, -4000])
@pytest.mark.parametrize("name", ["left", "right", "last"])
def test_what_an_instruction_touched_is_what_it_was_meant_for(trace, name, at):
    source = NEIGHBOURS.replace(
        "STORE", f"{name}[threadIdx.x == 3 ? at : (int)threadIdx.x] = 2;"
    )
    report = trace(source, "k", 1, 32, torch.zeros(32), at)
    (problem,) = report.problems
    assert (problem.kind, problem.lines) == ("out of bounds", (5,))
    assert (problem.buffer, problem.index) == (name, at)


def test_an_unsigned_index_below_zero_is_blamed_on_its_own_array(trace):
    source = NEIGHBOURS.replace("STORE", "right[threadIdx.x - 1] = 2;")
    report = trace(source, "k", 1, 32, torch.zeros(32), 0)
    (problem,) = report.problems
    assert (problem.kind, problem.buffer) == ("out of bounds", "right")
    assert problem.index == 2**32 - 1
    assert problem.threads == ((0, 0, 0),)


def test_the_end_of_a_matrix_in_shared_memory_is_seen_and_its_rows_are_not(trace):
    source = """__global__ void k(float* out, int row, int column) {
    __shared__ float tile[8][32], next[32];
    for (int i = 0; i < 8; ++i) tile[i][threadIdx.x] = 1;
    next[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = tile[row][threadIdx.x + column] + next[threadIdx.x];
}"""
    out = torch.zeros(32)
    # Past a row is the next row, as in C++ and for compute-sanitizer.
    trace(source, "k", 1, 32, out, 2, 5).assert_clean()
    report = trace(source, "k", 1, 32, out, 8, 0)
    (problem,) = report.problems
    assert (problem.buffer, problem.count) == ("tile", 32)
    assert problem.index == 8 * 32 + problem.threads[0][0]
    named = f"tile[8][{problem.threads[0][0]}], outside of tile, which has 8 x 32 elem"
    assert named in problem.message


def test_a_wide_access_that_begins_inside_names_where_it_ends(trace):
    source = """__global__ void k(const float* x, float4* out) {
    out[0] = reinterpret_cast<const float4*>(x)[threadIdx.x];
}"""
    report = trace(source, "k", 1, 3, torch.zeros(9), torch.zeros(4))
    (problem,) = (p for p in report.problems if p.kind == "out of bounds")
    assert "reads x[8] to x[11], partly outside of x, which has 9 elements" in (
        problem.message
    )


@pytest.mark.parametrize("rounds", ["k < 9", "k <= 8"])
def test_the_end_of_a_threads_own_array_is_seen_in_a_loop(trace, rounds):
    if find_compiler().is_clang:
        pytest.skip("clang++ says nothing of it")
    source = f"""__global__ void k(const float* x, float* out, int n) {{
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += 8 * 32) {{
        float v[8];
        for (int k = 0; k < 8; ++k) v[k] = i + 32 * k < n ? x[i + 32 * k] : 0;
        for (int k = 0; {rounds}; ++k) sum += v[k] * v[k];
    }}
    out[threadIdx.x] = sum;
}}"""
    x, out = torch.ones(600), torch.zeros(32)
    with pytest.raises(CompileError, match=r"line 6: array subscript 8 is above"):
        trace(source, "k", 1, 32, x, out, 600)
    within = source.replace(rounds, "k < 8")
    trace(within, "k", 1, 32, x, out, 600).assert_clean()


@pytest.mark.parametrize(
    "body",
    [
        "float4 v = ((const float4*)x)[threadIdx.x];\n"
        "    for (int i = 0; i < 4; ++i) sum += (&v.x)[i];",
        "float v[4][4];\n"
        "    for (int i = 0; i < 16; ++i) v[0][i] = x[threadIdx.x + i];\n"
        "    for (int i = 0; i < 4; ++i) sum += ((float4*)v)[i].x;",
        "__shared__ float tile[4][32];\n"
        "    for (int i = 0; i < 4; ++i)\n"
        "        tile[0][threadIdx.x + 32 * i] = x[threadIdx.x + 32 * i];\n"
        "    __syncthreads();\n"
        "    for (int i = 0; i < 4; ++i) sum += (&tile[0][0])[32 * i + threadIdx.x];",
    ],
    ids=["members", "rows_in_registers", "rows_in_shared_memory"],
)
def test_a_way_from_one_member_or_row_to_the_next_is_not_the_end(trace, body):
    source = f"""__global__ void k(const float* x, float* out) {{
    float sum = 0;
    {body}
    out[threadIdx.x] = sum;
}}"""
    trace(source, "k", 1, 32, torch.ones(1024), torch.zeros(32)).assert_clean()


def test_shared_arrays_lie_apart_and_begin_in_bank_0(trace):
    assembly = """\t.section\t.rodata
\t.zero\t4
\t.section\t.tbss._Z4tile,"awTG",@nobits,_Z4tile,comdat
\t.align 4
_Z4tile:
\t.zero\t132
\t.text
\t.zero\t8
"""
    apart = with_gaps(assembly).splitlines()
    assert [line for line in apart if line not in assembly.splitlines()] == [
        f"\t.zero\t{GAP}",
        f"\t.balign\t{BANKS}",
    ]
    assert apart[apart.index(f"\t.balign\t{BANKS}") + 1] == "_Z4tile:"
    source = """__global__ void k(int* out) {
    __shared__ char one;
    __shared__ float4 wide[3];
    __shared__ float odd[33], last[2];
    one = 1; wide[0] = {}; odd[0] = last[0] = 1;
    int places[4] = {(int)(size_t)&one, (int)(size_t)wide, (int)(size_t)odd,
                     (int)(size_t)last};
    for (int i = 0; i < 4; ++i) out[i] = places[i];
}"""
    out = torch.zeros(4, dtype=torch.int32)
    trace(source, "k", 1, 1, out).assert_clean()
    assert out.remainder(BANKS).eq(0).all()
    ordered = out.sort().values
    assert (ordered[1:] - ordered[:-1]).ge(GAP).all()


def test_a_null_pointer_is_unmapped(trace):
    source = "__global__ void k(float* p) { p[threadIdx.x] = 1; }"
    report = trace(source, "k", 1, 1, None)
    assert [p.kind for p in report.problems] == ["unmapped access"]
    assert "null" in report.problems[0].message


def test_a_copy_in_flight_is_unwritten_until_its_wait(trace):
    source = """#include <kw/cp_async.cuh>
__global__ void k(const float* x, float* out) {
    __shared__ float tile[32];
    kw::cp_async<4>(&tile[threadIdx.x], &x[threadIdx.x]);
    kw::cp_async_commit();
    WAIT
    out[threadIdx.x] = tile[threadIdx.x];
}"""
    x, out = torch.randn(32), torch.zeros(32)
    waits = source.replace("WAIT", "kw::cp_async_wait<0>();")
    trace(waits, "k", 1, 32, x, out).assert_clean()
    report = trace(source.replace("WAIT", ""), "k", 1, 32, x, out)
    assert [(p.kind, p.lines) for p in report.problems] == [
        ("uninitialised read", (7,))
    ]
    assert "asynchronous copy (line 4) has not delivered yet" in (
        report.problems[0].message
    )


def test_shared_memory_is_counted_in_its_own_elements(trace):
    source = """#include <cuda_fp16.h>
__global__ void k(float4* out) {
    __shared__ __align__(16) half tile[64], next[8 * (2 + 6)];
    *reinterpret_cast<float4*>(ARRAY + 8 * threadIdx.x) = float4{};
}"""
    for array in ("tile", "next"):
        edited = source.replace("ARRAY", array)
        problem = trace(edited, "k", 1, 9, torch.zeros(4)).problems[0]
        assert problem.index == 64
        assert f"outside of {array}, which has 64 elements" in problem.message


def test_what_a_warp_does_as_a_whole_has_no_mask(trace):
    source = """#include <kw/mma.cuh>
__global__ void k(float* out) {
    unsigned a[4] = {}, b[2] = {};
    float sum[4] = {};
    if (threadIdx.x) kw::mma_sync<half>(sum, a, b, sum);
    ELSE
    out[threadIdx.x] = sum[0];
}"""
    for other in ("", "else __syncwarp();"):
        report = trace(source.replace("ELSE", other), "k", 1, 32, torch.zeros(32))
        problem = next(p for p in report.problems if p.kind == "absent lane")
        assert "all 32 lanes of a warp make WMMA's calls" in problem.message
        assert "mask" not in problem.message


def test_memory_declared_unwritten_may_be_read_once_written(trace):
    source = """__global__ void k(float* out) {
    FIRST
    out[threadIdx.x] += 1;
}"""
    out = torch.zeros(32)
    bad = trace(source.replace("FIRST", ""), "k", 1, 32, out, unwritten=["out"])
    assert [(p.kind, p.lines, p.buffer, p.count) for p in bad.problems] == [
        ("uninitialised read", (3,), "out", 32)
    ]
    written = source.replace("FIRST", "out[threadIdx.x] = 2;")
    trace(written, "k", 1, 32, out, unwritten=[0]).assert_clean()


def test_what_never_ends_is_a_timeout_or_a_deadlock(trace, monkeypatch):
    monkeypatch.setenv("KERNELWRIGHT_DEADLINE_S", "0.3")
    spin = """__global__ void k(volatile int* flag) {
    while (flag[0] == 0) {}
}"""
    report = trace(spin, "k", 1, 32, torch.zeros(1, dtype=torch.int32))
    assert [p.kind for p in report.problems] == ["timeout"]
    # Nothing else may end it first.
    monkeypatch.setenv("KERNELWRIGHT_DEADLINE_S", "60")
    stuck = """__global__ void k(float* out) {
    if (threadIdx.x < 16) __syncthreads(); else __syncwarp(0xffffffff);
    out[threadIdx.x] = 1;
}"""
    report = trace(stuck, "k", 1, 32, torch.zeros(32))
    assert [p.kind for p in report.problems] == ["deadlock"]
    assert report.problems[0].lines == (2,)


def test_a_warp_that_waits_for_another_gets_to_see_it(trace):
    source = """__global__ void k(volatile int* flag, int* out) {
    if (threadIdx.x < 32) {
        for (int i = 0; i < 50; ++i) __nanosleep(10);
        flag[0] = 1;
    } else {
        while (flag[0] == 0) {}
        out[threadIdx.x] = 1;
    }
}"""
    out = torch.zeros(64, dtype=torch.int32)
    report = trace(source, "k", 1, 64, torch.zeros(1, dtype=torch.int32), out)
    assert "timeout" not in {p.kind for p in report.problems}
    assert out.tolist() == [0] * 32 + [1] * 32


def test_an_assertion_and_a_launch_of_many_problems_are_in_the_report(trace):
    source = """#include <cassert>
__global__ void k(float* out) {
    assert(threadIdx.x < 8);
    out[threadIdx.x] = 1;
}"""
    report = trace(source, "k", 1, 32, torch.zeros(32))
    assert [(p.kind, p.lines) for p in report.problems] == [("assert", (3,))]
    with pytest.raises(TraceProblem, match="assertion") as caught:
        report.assert_clean()
    assert caught.value.problems == report.problems


def test_a_matmul_through_wmma_and_shared_memory_is_clean(trace):
    source = """#include <mma.h>
using namespace nvcuda;
__global__ void k(const half* a, const half* b, float* c) {
    __shared__ half left[16 * 16], right[16 * 16];
    for (int i = threadIdx.x; i < 256; i += 32) left[i] = a[i], right[i] = b[i];
    __syncwarp();
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> x;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> y;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    wmma::load_matrix_sync(x, left, 16);
    wmma::load_matrix_sync(y, right, 16);
    wmma::mma_sync(sum, x, y, sum);
    wmma::store_matrix_sync(c, sum, 16, wmma::mem_row_major);
}"""
    a, b = torch.randn(2, 16, 16).half()
    c = torch.zeros(16, 16)
    report = trace(source, "k", 1, 32, a, b, c)
    report.assert_clean()
    torch.testing.assert_close(c, a.float() @ b.float().T, atol=1e-3, rtol=1e-3)
    loads = [x for x in report.lines if x.line in (11, 12)]
    assert [(x.space, x.width, x.requests) for x in loads] == [("shared", 4, 4)] * 2


WAYS_PAST = {
    "a barrier in a branch": (
        "divergent barrier",
        "if (t < 40) __syncthreads(); out[t] = x[t];",
    ),
    "in a branch of a loop": (
        "divergent barrier",
        """for (int half = 32; half > 0; half /= 2) {
            if (t < half) { part[t] += part[t + half]; __syncthreads(); }
        }
        if (t == 0) out[0] = part[0];""",
    ),
    "in a loop of uneven length": (
        "divergent barrier",
        "for (int k = 0; k < t % 3; ++k) { part[t] += x[k]; __syncthreads(); }"
        " out[t] = part[t];",
    ),
    "a return before the first": (
        "early exit",
        "if (t >= 40) return; __syncthreads(); out[t] = part[t];",
    ),
    "a return with work before it": (
        "early exit",
        "if (t >= 40) { out[t] = 0.0f; return; } __syncthreads(); out[t] = part[t];",
    ),
    "a return out of a loop": (
        "early exit",
        """for (int k = 0; k < 4; ++k) {
            if (x[t] > k && t % 5 == k) return;
            part[t] += x[k];
            __syncthreads();
        }
        out[t] = part[t];""",
    ),
    "a return out of a loop with work before it": (
        "early exit",
        """for (int k = 0; k < 4; ++k) {
            if (t % 5 == k) { out[t] = x[t]; return; }
            part[t] += x[k];
            __syncthreads();
        }
        out[t] = part[t];""",
    ),
}


@pytest.mark.parametrize("case", WAYS_PAST)
def test_who_went_past_a_barrier_is_told_from_who_returned_before_it(trace, case):
    kind, body = WAYS_PAST[case]
    source = f"""__global__ void k(const float* x, float* out) {{
        __shared__ float part[64];
        int t = threadIdx.x;
        part[t] = x[t];
        __syncthreads();
        {body}
    }}"""
    report = trace(source, "k", 2, 64, torch.full((64,), 9.0), torch.zeros(64))
    ours = [p for p in report.problems if p.kind in ("divergent barrier", "early exit")]
    assert len(ours) == 1, report
    # clang joins the stores of two ways into one behind both, where all then come.
    assert ours[0].kind == kind or find_compiler().is_clang, report
    assert "__syncthreads()" in report.source.splitlines()[ours[0].lines[0] - 1]
