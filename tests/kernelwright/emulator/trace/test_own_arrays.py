"""An index that leaves a thread's own array is named, and what CUDA allows is not."""

from __future__ import annotations

import pytest
import torch

from kernelwright.emulator.toolchain import find_compiler

# g++ asks at each index that only the run tells; clang++ is not told to.
CHECKED = pytest.mark.skipif(
    find_compiler().is_clang, reason="clang++ says nothing of it"
)


def traced(trace, body, n, *, threads=2, shared=0):
    """Trace a kernel of one block, whose ``n`` the compiler does not know."""
    source = f"""__global__ void k(const float* x, float* out, int n) {{
    float sum = 0;
    {body}
    out[threadIdx.x] = sum;
}}"""
    out = torch.zeros(threads)
    x = torch.ones(1024)
    return trace(source, "k", 1, threads, x, out, n, shared=shared), out


OVERRUNS = {
    "a read": (
        "float v[8] = {};\n    for (int i = 0; i <= n; ++i) sum += v[i];",
        8,
        (4, "v", 8, "reads v[8], outside of v, which has 8 elements: keep every index"),
    ),
    "a write": (
        "int v[8];\n    for (int i = 0; i <= n; ++i) v[i] = i;\n    sum = v[n / 2];",
        8,
        (4, "v", 8, "writes v[8], outside of v, which has 8 elements"),
    ),
    "a sum": (
        "float v[32] = {};\n    for (int i = 0; i <= n; ++i) v[i] += x[i];\n"
        "    sum = v[n / 2];",
        32,
        (4, "v", 32, "writes v[32], outside of v, which has 32 elements"),
    ),
    "before the first": (
        "float v[8] = {};\n    for (int i = n; i >= -1; --i) sum += v[i];",
        3,
        (4, "v", -1, "reads v[-1], outside of v"),
    ),
    "an unsigned index": (
        "float v[8] = {};\n    sum = v[n - 1u];",
        0,
        (4, "v", 2**32 - 1, "reads v[4294967295], outside of v"),
    ),
    "a row": (
        "float tile[3][7] = {};\n    sum = tile[n - 8][n];",
        9,
        (4, "tile", 9, "reads tile[n - 8][9], outside of tile[n - 8], which has 7 el"),
    ),
    "behind the last row": (
        "float tile[3][7] = {};\n    for (int i = 0; i <= n; ++i) sum += tile[i][0];",
        3,
        (4, "tile", 3, "reads tile[3], outside of tile, which has 3 rows"),
    ),
    "an index of an index": (
        "int at[4] = {0, 1, 2, 3};\n    float v[2] = {};\n    sum = v[at[n]];",
        3,
        (5, "v", 3, "reads v[3], outside of v, which has 2 elements"),
    ),
    "a vector's member": (
        "float4 v[2] = {};\n    for (int i = 0; i < n; ++i) v[i].y = 1;\n"
        "    sum = v[n / 2].y;",
        3,
        (4, "v", 2, "writes v[2], outside of v, which has 2 elements"),
    ),
    "a declarator behind others": (
        "float a = 1, b[2] = {1, 2}, v[3] = {};\n    sum = a + b[0] + v[n];",
        3,
        (4, "v", 3, "reads v[3], outside of v, which has 3 elements"),
    ),
}


@CHECKED
@pytest.mark.parametrize("case", OVERRUNS)
def test_an_index_outside_of_a_threads_own_array_is_named(trace, case):
    body, n, (line, name, index, words) = OVERRUNS[case]
    report, out = traced(trace, body, n)
    (problem,) = report.problems
    assert (problem.kind, problem.lines) == ("out of bounds", (line,))
    assert (problem.buffer, problem.index, problem.count) == (name, index, 2)
    assert (problem.block, problem.threads) == ((0, 0, 0), ((0, 0, 0),))
    assert words in problem.message
    assert out.eq(0).all()  # such a thread goes no further


@CHECKED
def test_the_other_threads_come_to_their_end(trace):
    body = "float v[4] = {1, 1, 1, 1};\n    sum = v[threadIdx.x == 3 ? n : 0];"
    report, out = traced(trace, body, 4, threads=32)
    (problem,) = report.problems
    assert (problem.threads, problem.index) == (((3, 0, 0),), 4)
    assert out.tolist() == [1] * 3 + [0] + [1] * 28


@CHECKED
def test_a_templates_array_and_a_device_functions_are_watched(trace):
    source = """template <int N>
__device__ float last(int at) {
    float held[N] = {};
    return held[at];
}
__global__ void k(float* out, int n) {
    out[threadIdx.x] = last<4>(n) + last<8>(n);
}"""
    trace(source, "k", 1, 1, torch.zeros(1), 3).assert_clean()
    (problem,) = trace(source, "k", 1, 1, torch.zeros(1), 4).problems
    assert (problem.lines, problem.buffer, problem.index) == ((4,), "held", 4)


LEFT_ALONE = {
    "to the end": (
        "float v[8] = {};\n    for (int i = 0; i < n; ++i) sum += v[i];",
        8,
    ),
    "members": (
        "float4 v = ((const float4*)x)[threadIdx.x];\n"
        "    for (int i = 0; i < n; ++i) sum += (&v.x)[i];",
        4,
    ),
    "rows in registers": (
        "float v[4][4];\n    for (int i = 0; i < n; ++i) v[0][i] = x[i];\n"
        "    for (int i = 0; i < n; ++i) sum += v[0][i];",
        16,
    ),
    "rows in shared memory": (
        "__shared__ float tile[4][32];\n"
        "    for (int i = 0; i < n; ++i) tile[0][i] = 1;\n    __syncthreads();\n"
        "    for (int i = 1; i < 3; ++i) sum += tile[i][n / 3];",
        128,
    ),
    "dynamic shared memory": (
        "extern __shared__ float rows[][4];\n"
        "    for (int i = 0; i < n; ++i) rows[0][i] = 1;\n    __syncthreads();\n"
        "    sum = rows[1][n - 8];",
        16,
    ),
    "global memory as a matrix": (
        "const float(*rows)[4] = (const float(*)[4])x;\n    sum = rows[1][n];",
        16,
    ),
    "a flexible end": (
        "struct List { int count; float of[1]; };\n"
        "    const List* list = (const List*)x;\n    sum = list->of[n];",
        8,
    ),
    "the address of the end": (
        "float v[8] = {};\n    const float *at = &v[n - 8], *end = &v[n];\n"
        "    while (at < end) sum += *at++;",
        8,
    ),
    "a size": ("float v[8];\n    sum = sizeof(v[9]) + n;", 8),
    "a name of shared memory further in": (
        "float v[2] = {};\n    sum += v[n % 2];\n"
        "    { __shared__ float v[4][8]; for (int i = 0; i < n; ++i) v[1][i] = 1; }",
        16,
    ),
    "what is not come to": (
        "float v[8] = {};\n    for (int i = 0; i < n; ++i) if (i < 8) sum += v[i];\n"
        "    if (n < 8 && v[n]) sum = 1;",
        9,
    ),
}


@pytest.mark.parametrize("case", LEFT_ALONE)
def test_what_cuda_allows_is_left_alone(trace, case):
    body, n = LEFT_ALONE[case]
    report, _ = traced(trace, body, n, shared=128)
    report.assert_clean()


def test_a_missing_return_is_a_fault_under_the_trace_too(trace):
    source = """__device__ float half_of(float x, int n) {
    if (n < 8) return x / 2;
}
__global__ void k(const float* x, float* out, int n) {
    out[threadIdx.x] = half_of(x[threadIdx.x], n);
}"""
    trace(source, "k", 1, 2, torch.ones(2), torch.zeros(2), 7).assert_clean()
    (problem,) = trace(source, "k", 1, 2, torch.ones(2), torch.zeros(2), 8).problems
    assert problem.kind == "illegal instruction"
    assert "end of a function that must return a value" in problem.message
    assert problem.lines[0] in (1, 2, 3, 5)
