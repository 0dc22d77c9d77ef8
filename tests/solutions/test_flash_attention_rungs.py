"""The rungs of chapter 9: right, lean in memory, clean in trace and machine code."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import torch

import kernelwright as kw
from benchmarks.flash_attention import check_correct, options_of
from solutions.flash_attention import flash_attention
from solutions.flash_attention.rungs import launch_mma, rung_kernel
from tests.solutions.attention_cases import (
    DEVICES,
    HALVES,
    Heads,
    draw,
    exact,
)


@pytest.mark.parametrize("device", DEVICES)
def test_the_rungs(device: str) -> None:
    check_correct(device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_the_last_rung_takes_groups_strides_and_scales(
    dtype: torch.dtype, device: str
) -> None:
    for head_dim in (64, 128):
        q, k, v = draw(70, 90, head_dim, (4, 2), dtype=dtype, device=device)
        # As a projection gives them: (batch, length, heads, head_dim), transposed.
        for heads in (
            (q, k, v),
            _as_projected(q, k, v),
            (q[:, :, 1:], k, v[..., :, :]),
        ):
            for told in (
                {},
                {"causal": True},
                {"causal": "bottom-right", "scale": 0.3},
            ):
                got = flash_attention(*heads, **told, kernel="mma")
                wanted = exact(*heads, **told)
                assert (got - wanted).abs().max() < 8 * torch.finfo(dtype).eps


def _as_projected(*heads: torch.Tensor) -> Heads:
    q, k, v = (t.transpose(1, 2).contiguous().transpose(1, 2) for t in heads)
    return q, k, v


def test_log_sum_exp_and_rows_that_see_nothing() -> None:
    q, k, v = draw(90, 40, dtype=torch.float16)
    out, lse = launch_mma(q, k, v, options_of((q, k, v), "bottom-right"))  # type: ignore[arg-type]
    scores = (q.double() @ k.double().mT) / 8
    hidden = torch.arange(40) > torch.arange(90)[:, None] - 50
    wanted = scores.masked_fill(hidden, -math.inf).logsumexp(-1)
    assert (lse[..., :50] == -math.inf).all() and not out[..., :50, :].any()
    torch.testing.assert_close(
        lse[..., 50:].double(), wanted[..., 50:], atol=1e-5, rtol=1e-6
    )


@pytest.mark.parametrize("device", DEVICES)
def test_large_logits_and_a_maximum_that_keeps_rising(device: str) -> None:
    for kernel, dtype in (("forward", torch.float32), ("mma", torch.float16)):
        q, k, v = draw(64, 300, heads=(1, 1), batch=1, device=device)
        q, k = 60 * q, 60 * k
        k[..., :8] += torch.linspace(-50, 50, 300, device=device)[:, None]
        heads = tuple(t.to(dtype) for t in (q, k, v))
        got = flash_attention(*heads, kernel=kernel)
        scores = heads[0].double() @ heads[1].double().mT / 8
        assert scores.abs().max() > 1e4
        wanted = exact(*heads)
        # A score of 10,000 is exact to 10,000 eps in fp32, and a weight relatively.
        error = (got - wanted).abs().max()
        assert torch.isfinite(got).all() and error < 2e-2, (kernel, error)


@pytest.mark.parametrize("kernel", ["forward", "wmma", "mma"])
def test_memory_is_the_output_and_a_number_a_query(kernel: str) -> None:
    dtype = torch.float32 if kernel == "forward" else torch.float16
    peaks = []
    for length in (128, 256):
        q, k, v = draw(length, length, heads=(1, 1), batch=1, dtype=dtype)

        def run(*heads: torch.Tensor) -> torch.Tensor:
            return flash_attention(*heads, kernel=kernel)  # type: ignore[arg-type]

        use = kw.peak_memory(run, q, k, v)
        assert use.peak_bytes <= q.nbytes + 4 * length + 4096
        peaks.append(use.peak_bytes)
    assert peaks[1] <= 2 * peaks[0]


def test_the_machine_code() -> None:
    mma = kw.cuda.compile(_source("mma"))
    for name in ("__half, 128, 64, 4", "__nv_bfloat16, 64, 128, 4"):
        kernel = mma[f"flash_mma<{name}>"]
        sass = kernel.sass("sm_90")
        assert kernel.resources("sm_90").spill_bytes == 0
        assert "HMMA.16816" in sass and "LDSM" in sass and "LDGSTS" in sass
        # Nothing is ever stored to shared memory by a thread: weights stay where
        # they are.
        assert not re.search(r"\bSTS\b", sass)
    for head_dim in (64, 128):
        kernel = rung_kernel("wmma", head_dim, torch.bfloat16, "cpu")
        assert kernel.resources("sm_90").spill_bytes == 0
        assert "HMMA" in kernel.sass("sm_90")


def test_the_trace_of_the_last_rung_is_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    from solutions.flash_attention import rungs

    q, k, v = draw(40, 150, heads=(1, 1), batch=1, dtype=torch.float16)
    launches = []

    class Traced:
        """Traces what would be launched."""

        def __init__(self, kernel: kw.cuda.Kernel) -> None:
            self.kernel = kernel

        def __getitem__(self, launch: tuple[Any, ...]) -> Any:
            def run(*arguments: Any) -> None:
                launches.append(self.kernel.trace[launch](*arguments))

            return run

    module = kw.cuda.compile(_source("mma"), backend="emulator")
    monkeypatch.setattr(rungs, "_mma_kernel", lambda name, _: Traced(module[name]))
    launch_mma(q, k, v, options_of((q, k, v), True))
    (report,) = launches
    report.assert_clean()
    # Each row of an ldmatrix lies in banks of its own.
    assert report.shared_load.wavefronts_per_request <= 4.0


def _source(name: str) -> str:
    from solutions.flash_attention import rungs

    return (rungs._FOLDER / f"{name}.cu").read_text()
