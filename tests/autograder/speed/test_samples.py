"""What is looked at, and what counts as wrong."""

from __future__ import annotations

import math

import pytest
import torch

from autograder.exercise import Case, Tolerance
from autograder.judge.speed.samples import PROBES, Made, _offsets, probes, wrong_places
from autograder.judge.values import is_right
from autograder.worker.places import contiguous_strides

CASE = Case("n", {"n": 1})


def test_small_outputs_are_looked_at_whole():
    index = probes(100, 3, key=1, device="cpu")
    assert index.shape == (3, 100)
    assert all(torch.equal(row, torch.arange(100)) for row in index)


def test_large_outputs_are_probed_at_random_and_at_both_ends():
    n = 1_000_000
    index = probes(n, 5, key=1, device="cpu")
    assert index.shape[0] == 5 and index.shape[1] > PROBES
    assert int(index.min()) == 0 and int(index.max()) == n - 1
    for row in index:
        assert set(range(64)) | set(range(n - 64, n)) <= set(row.tolist())
    assert not torch.equal(index[0], index[1])


def test_another_key_looks_elsewhere():
    first, again, other = (probes(10**6, 2, key, "cpu") for key in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_one_in_a_hundred_missing_is_found_in_a_few_calls():
    n = 1_000_000
    index = probes(n, 400, key=9, device="cpu")
    scattered = torch.zeros(n, dtype=torch.bool)
    scattered[100:-100:100] = True
    assert bool(scattered[index].any(dim=1).all())
    together = torch.zeros(n, dtype=torch.bool)
    together[n // 2 : n // 2 + n // 100] = True
    found = together[index].any(dim=1)
    # A window falls on it, whole or in part, about once in six calls.
    assert 0.10 < float(found.double().mean()) < 0.25
    # Eight calls are looked at in each of seven rounds.
    assert bool(found.reshape(-1, 50).any(dim=1).all())


@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 4)])
def test_offsets_follow_strides(shape):
    for tensor in (torch.arange(math.prod(shape)).reshape(shape),):
        moved = tensor.permute(*range(len(shape))[::-1])
        made = Made("out", tensor.dtype, tuple(moved.shape), moved.stride(), (0,))
        index = torch.arange(made.elements)
        flat = tensor.reshape(-1)
        assert torch.equal(flat[_offsets(index, made)], moved.reshape(-1))
    assert contiguous_strides((2, 3, 4)) == (12, 4, 1)


def cases_of_wrong():
    yield [1.0, 2.0], [1.0, 2.0], [False, False]
    yield [1.0, 2.5], [1.0, 2.0], [False, True]
    yield [math.nan, 1.0], [math.nan, math.nan], [False, True]
    yield [math.inf, -math.inf], [math.inf, math.inf], [False, True]
    yield [3.0, math.inf], [math.inf, 3.0], [True, True]
    yield [1e-45, 0.0], [0.0, 1e-45], [False, False]


@pytest.mark.parametrize(("got", "want", "wrong"), list(cases_of_wrong()))
def test_wrong_places(got, want, wrong):
    got, want = torch.tensor(got), torch.tensor(want, dtype=torch.float64)
    found = wrong_places(got, want, want, Tolerance(1.0), CASE)
    assert found.tolist() == wrong


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_it_is_the_judges_own_rule(dtype):
    draw = torch.Generator().manual_seed(4)
    want = torch.randn(5000, generator=draw, dtype=torch.float64) * 300
    want[::97], want[1::97] = math.inf, math.nan
    want[2::97] = 1e30  # overflows float16
    eps = torch.finfo(dtype).eps
    noise = 1 + 4 * eps * torch.randn(5000, generator=draw, dtype=torch.float64)
    got = (want * noise).to(dtype)
    got[3::97] = math.inf
    scale = want.abs() * 2
    tolerance = Tolerance(1.5, length=lambda case: 4)
    ours = wrong_places(got, want, scale, tolerance, CASE)
    assert torch.equal(~ours, is_right(got, want, scale, tolerance, CASE))
    assert 0 < int(ours.sum()) < 5000


def test_integers_must_be_equal():
    got = torch.tensor([1, 2, 3], dtype=torch.int32)
    want = torch.tensor([1, 2, 4], dtype=torch.int64)
    assert wrong_places(got, want, want, Tolerance(9.0), CASE).tolist() == [
        False,
        False,
        True,
    ]
