"""solutions.flash_attention on a GPU: errors beside torch, options, long rows."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import kernelwright as kw
from solutions.flash_attention import flash_attention
from tests.solutions.attention_cases import (
    HALVES,
    NAMES,
    SDPA,
    draw,
    exact,
    options_for,
)


def _torchs(q: Any, k: Any, v: Any, causal: bool) -> torch.Tensor:
    grouped = q.shape[1] != k.shape[1]
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
        return SDPA(q, k, v, is_causal=causal, enable_gqa=grouped)


def _with_gradients(
    run: Any, given: tuple[torch.Tensor, ...], grad: torch.Tensor
) -> list[torch.Tensor]:
    leaves = [t.detach().clone().requires_grad_() for t in given]
    out = run(*leaves)
    out.backward(grad.to(out.dtype))
    return [out.detach(), *(t.grad for t in leaves)]  # type: ignore[misc]


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("head_dim", "dtype"),
    [
        *((d, dtype) for d in (64, 128) for dtype in HALVES),
        (32, torch.bfloat16),
        (80, torch.float16),
        (256, torch.bfloat16),
    ],
)
def test_error_is_at_most_twice_torchs(head_dim: int, dtype: torch.dtype) -> None:
    """Forward and gradients, against float64, beside torch's own half precision."""
    for shape, heads, causal in (
        ((512, 512), (4, 4), False),
        ((512, 512), (4, 4), True),
        ((300, 1031), (4, 2), False),
    ):
        given = draw(*shape, head_dim, heads, dtype=dtype, device="cuda")
        grad = torch.randn(given[0].shape, device="cuda", dtype=dtype)
        face = partial(flash_attention, causal=causal)
        wide = tuple(t.double() for t in given)
        own = _with_gradients(face, given, grad)
        peer = _with_gradients(partial(_torchs, causal=causal), given, grad)
        truth = _with_gradients(partial(face, kernel="plain"), wide, grad)
        for got, other, wanted in zip(own, peer, truth, strict=True):
            error = (got.double() - wanted).abs().max()
            allowed = 2 * (other.double() - wanted).abs().max()
            assert error <= allowed, (head_dim, shape, causal, error, allowed)


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
def test_every_option_on_the_gpu(name: str) -> None:
    dtype = torch.float16 if name == "all" else torch.bfloat16
    told = options_for(130, 257, "cuda")[name]
    q, k, v = draw(130, 257, 64, (4, 2), dtype=dtype, device="cuda")
    leaves = [t.clone().requires_grad_() for t in (q, k, v)]
    wide = [t.double().requires_grad_() for t in (q, k, v)]
    got, wanted = flash_attention(*leaves, **told), flash_attention(*wide, **told)
    eps = torch.finfo(dtype).eps
    assert got.dtype == dtype and torch.isfinite(got).all()
    assert (got - wanted).abs().max() <= 4 * eps * wanted.abs().max()
    grad = torch.randn_like(got)
    got.backward(grad)
    wanted.backward(grad.double())
    for own, other in zip(leaves, wide, strict=True):
        assert own.grad is not None and other.grad is not None
        error = (own.grad - other.grad).abs().max()
        assert error <= 16 * eps * other.grad.abs().max(), (name, error)


@pytest.mark.gpu
def test_32768_tokens_and_memory_that_grows_with_the_length() -> None:
    peaks = []
    for length in (16384, 32768):
        q, k, v = draw(length, length, heads=(8, 8), batch=1, dtype=torch.bfloat16)
        heads = [t.cuda() for t in (q, k, v)]
        for kernel in (None, "mma"):
            run = partial(flash_attention, kernel=kernel)  # type: ignore[arg-type]
            with torch.no_grad():
                use = kw.peak_memory(run, *heads)
            assert use.peak_bytes < 3 * heads[0].nbytes
        peaks.append(use.peak_bytes)
        # Against float64, for the last queries.
        some = [heads[0][:, :, -16:], *heads[1:]]
        got = flash_attention(*heads, kernel="mma")[:, :, -16:]
        assert (got - exact(*some)).abs().max() < 2e-3
    assert peaks[1] <= 2.1 * peaks[0]


@pytest.mark.gpu
@pytest.mark.slow
def test_past_2_to_the_31_elements() -> None:
    shape = (1, 520, 32768, 128)  # 2.2e9 elements
    q, k, v = (
        torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3)
    )
    q, k, v = q[:, :, :64], k, v
    for kernel in (None, "mma"):
        out = flash_attention(q, k, v, kernel=kernel)  # type: ignore[arg-type]
        last = [t[:, -1:] for t in (q, k, v)]
        assert (out[:, -1:] - exact(*last)).abs().max() < 2e-3
