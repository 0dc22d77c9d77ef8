"""Accesses beside what has no elements: the address of an empty tensor is null."""

from __future__ import annotations

import pytest
import torch

import kernelwright as kw
from kernelwright.errors import KernelFault

SOURCE = """__global__ void k(const TYPE* x, TYPE* out, int at) {
    out[threadIdx.x] = {};
    STATEMENT
}"""
READ, WRITE = "out[threadIdx.x] = x[at];", "((TYPE*)x)[at] = TYPE{};"
PLACES = [-1, 0, 1, -5000, 5000, 1 << 20]
EMPTY = torch.empty(0)


def kernel_of(statement, ctype="float"):
    return SOURCE.replace("STATEMENT", statement).replace("TYPE", ctype)


@pytest.mark.parametrize("at", PLACES)
@pytest.mark.parametrize("statement", [READ, WRITE], ids=["read", "write"])
@pytest.mark.parametrize("ctype", ["float", "float4", "char"])
def test_an_access_beside_an_empty_tensor_is_out_of_its_bounds(
    trace, ctype, statement, at
):
    dtype = torch.int8 if ctype == "char" else torch.float32
    out = torch.zeros(32 * (4 if ctype == "float4" else 1), dtype=dtype)
    x = torch.empty(0, dtype=dtype)
    report = trace(kernel_of(statement, ctype), "k", 2, 32, x, out, at)
    (problem,) = report.problems
    assert (problem.kind, problem.lines, problem.count) == ("out of bounds", (3,), 64)
    assert (problem.buffer, problem.index) == ("x", at)
    assert (problem.block, problem.threads) == ((0, 0, 0), ((0, 0, 0),))
    did = "reads" if statement == READ else "writes"
    assert f"thread (0, 0, 0) of block (0, 0, 0) {did} x[{at}]" in problem.message
    assert "outside of x, which is empty" in problem.message


@pytest.mark.parametrize("at", PLACES)
def test_where_two_parameters_have_no_memory_both_are_named(trace, at):
    source = """__global__ void k(const float* x, const float* y, float* out, int at) {
    out[threadIdx.x] = y[at];
}"""
    for x, y in ((EMPTY, EMPTY), (None, EMPTY), (EMPTY, None)):
        report = trace(source, "k", 1, 32, x, y, torch.zeros(32), at)
        (problem,) = report.problems
        assert (problem.kind, problem.lines) == ("out of bounds", (2,))
        assert problem.buffer is None
        # The empty ones first.
        assert ("y and x" if x is None else "x and y") in problem.message


@pytest.mark.parametrize("at", PLACES)
def test_beside_none_is_a_null_pointer_as_before(trace, at):
    report = trace(kernel_of(READ), "k", 1, 32, None, torch.zeros(32), at)
    (problem,) = report.problems
    assert (problem.kind, problem.lines) == ("unmapped access", (3,))
    assert f"address {at * 4 % (1 << 64):#x}, which is a null pointer or near one" in (
        problem.message
    )


def test_an_empty_tensor_that_nobody_touches_is_no_problem(trace):
    source = """__global__ void k(const float* x, float* out, int n) {
    int i = threadIdx.x;
    out[i] = i < n ? x[i] : x == nullptr;
}"""
    out = torch.zeros(32)
    trace(source, "k", 1, 32, EMPTY, out, 0).assert_clean()
    # A kernel sees the same pointer under the trace and without it.
    assert out.eq(1).all()
    kw.cuda.compile(source, backend="emulator")["k"][1, 32](EMPTY, out.zero_(), 0)
    assert out.eq(1).all()


@pytest.mark.parametrize("at", [-1, 0, 1])
def test_without_the_trace_it_ends_the_launch_on_its_line(at):
    kernel = kw.cuda.compile(kernel_of(READ), backend="emulator")["k"]
    with pytest.raises(KernelFault, match=r"k, line 3: thread \(0, 0, 0\)") as caught:
        kernel[1, 32](EMPTY, torch.zeros(32), at)
    assert caught.value.line == 3


@pytest.mark.parametrize("at", [-1, 0, 1, -5000, 5000, 60000])
@pytest.mark.parametrize("count", [0, 32])
def test_beside_dynamic_shared_memory_even_of_no_bytes(trace, at, count):
    source = """__global__ void k(float* out, int at) {
    extern __shared__ float tile[];
    if (threadIdx.x == 3) tile[at] = 1;
    out[threadIdx.x] = 1;
}"""
    report = trace(source, "k", 1, 32, torch.zeros(32), at, shared=4 * count)
    if 0 <= at < count:
        return report.assert_clean()
    (problem,) = report.problems
    assert (problem.kind, problem.lines) == ("out of bounds", (3,))
    assert (problem.buffer, problem.index) == ("tile", at)
    empty = "which is empty (the launch asked for no bytes of dynamic shared memory)"
    assert (empty in problem.message) == (count == 0)
