"""Outputs that a trace knows to be empty."""

from __future__ import annotations

import pytest
import torch

import kernelwright as kw
from kernelwright.trace.unwritten import is_unwritten, marking_empty_tensors

SOURCE = """
__global__ void add(const float* x, float* sum, int n) {
    if (threadIdx.x < n) sum[threadIdx.x] += x[threadIdx.x];
}
"""


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_it_is_like_the_tensor_and_holds_nothing(dtype: torch.dtype) -> None:
    x = torch.ones(3, 5, dtype=dtype).T
    made = kw.unwritten_like(x)
    assert (made.shape, made.stride(), made.dtype) == (x.shape, x.stride(), dtype)
    assert is_unwritten(made) and not is_unwritten(x)
    assert made.isnan().all() if dtype.is_floating_point else (made < -1000).all()


def test_any_write_ends_it() -> None:
    made = kw.unwritten_like(torch.ones(4))
    made[1:][0] = 2.0
    assert not is_unwritten(made)
    made = kw.unwritten_like(torch.ones(4))
    torch.add(torch.ones(4), 1.0, out=made)
    assert not is_unwritten(made)
    made = kw.unwritten_like(torch.ones(4))
    made.view(torch.uint8).fill_(0xFF)
    assert not is_unwritten(made)  # though it holds what it held
    made = kw.unwritten_like(torch.ones(4))
    made.numpy()[3] = 0.0
    assert not is_unwritten(made) and not is_unwritten(made.clone())


def test_reading_it_is_a_problem_of_a_cuda_kernel() -> None:
    kernel = kw.cuda.compile(SOURCE, backend="emulator")["add"]
    x = torch.ones(8)
    total = kw.unwritten_like(x)
    (problem,) = kernel.trace[1, 32](x, total, 8).problems
    assert (problem.kind, problem.buffer) == ("uninitialised read", "sum")
    total = kw.unwritten_like(x).zero_()
    kernel.trace[1, 32](x, total, 8).assert_clean()
    assert torch.equal(total, x)
    # Written by a launch, it may be read by the next.
    total = kw.unwritten_like(x)
    kernel[1, 32](x, total.copy_(x), 8)
    kernel.trace[1, 32](x, total, 8).assert_clean()


def test_what_torch_leaves_empty_is_marked_where_that_is_asked_for() -> None:
    with marking_empty_tensors():
        empty = [torch.empty(3), torch.empty_like(torch.ones(2)), torch.ones(2)]
        filled = [torch.zeros(3), torch.empty(3).fill_(1.0), torch.full((2,), 1.0)]
        leaf = torch.empty(2, requires_grad=True)
    assert [is_unwritten(t) for t in empty] == [True, True, False]
    assert not any(is_unwritten(t) for t in filled)
    assert is_unwritten(leaf)
    assert not is_unwritten(torch.empty(3))
