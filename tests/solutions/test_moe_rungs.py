"""The rungs of chapter 14: a product of ragged experts, against a loop in float64."""

from __future__ import annotations

import pytest
import torch

import kernelwright as kw
from solutions.moe.ragged_gemm import grouped_gemm

# Triton runs where its kernels do: interpreted without a GPU, compiled with one.
TRITON = "cuda" if kw.cuda.backend() == "gpu" else "cpu"


def draw(
    ends: list[int], behind: int, inner: int, columns: int, device: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Draw x, whose last rows are NaN and nobody's, and a matrix for each expert."""
    generator = torch.Generator().manual_seed(sum(ends) + inner)
    x = torch.randn(ends[-1] + behind, inner, generator=generator).half()
    x[ends[-1] :] = torch.nan
    weights = torch.randn(len(ends), inner, columns, generator=generator)
    weights = (weights / max(1, inner) ** 0.5).half()
    offsets = torch.tensor(ends, dtype=torch.int32)
    return x.to(device), weights.to(device), offsets.to(device)


def by_a_loop(
    x: torch.Tensor, weights: torch.Tensor, offsets: torch.Tensor
) -> torch.Tensor:
    """Multiply expert by expert in float64; zeros behind the last one's rows."""
    out = torch.zeros(x.shape[0], weights.shape[2], dtype=torch.float64)
    begin = 0
    for e, end in enumerate(offsets.tolist()):
        out[begin:end] = (x[begin:end].double() @ weights[e].double()).cpu()
        begin = end
    return out


def expect(got: torch.Tensor, right: torch.Tensor) -> None:
    """Rounded once: half an eps of the result, and what the sums in fp32 are off by."""
    assert got.dtype == torch.float16
    torch.testing.assert_close(
        got.double().cpu(), right, rtol=0.51 * torch.finfo(got.dtype).eps, atol=2e-5
    )


@pytest.mark.parametrize(
    ("ends", "behind", "inner", "columns"),
    [
        ([128, 256, 384], 0, 64, 256),  # whole tiles
        ([1, 130, 257], 0, 70, 130),  # a row, a row more than a tile, one less
        ([0, 0, 50, 50, 90, 90], 0, 33, 20),  # none at first, between, at last
        ([40, 100], 200, 16, 9),  # more rows behind than a tile holds
        ([0, 0, 0], 60, 24, 8),
        (list(range(3, 120, 3)), 1, 8, 300),  # more experts than tiles
        ([5], 0, 0, 7),
        ([0, 0], 0, 16, 8),
    ],
)
def test_ragged_products(
    ends: list[int], behind: int, inner: int, columns: int
) -> None:
    given = draw(ends, behind, inner, columns, TRITON)
    expect(grouped_gemm(*given), by_a_loop(*given))


def test_nan_stays_in_its_row() -> None:
    x, weights, offsets = draw([30, 61, 200], 0, 40, 50, TRITON)
    right = by_a_loop(x, weights, offsets)
    x[[29, 61]] = torch.nan  # the last row of an expert, the first of another
    got = grouped_gemm(x, weights, offsets)
    assert got[[29, 61]].isnan().all()
    rest = torch.ones(200, dtype=torch.bool)
    rest[[29, 61]] = False
    expect(got[rest.to(got.device)], right[rest])


@pytest.mark.gpu
def test_many_rows_without_waiting_and_in_a_graph() -> None:
    """The host never learns the offsets: other ones serve the same recorded launch."""
    torch.manual_seed(14)
    experts, height = 64, 16384
    cuts = torch.randint(0, height + 1, (2, experts)).sort(dim=1).values.int().cuda()
    x = torch.randn(height, 1024, device="cuda").half()
    weights = (torch.randn(experts, 1024, 768, device="cuda") / 32).half()
    offsets = cuts[0].clone()
    grouped_gemm(x, weights, offsets)  # compiled, and tuned where it is
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = grouped_gemm(x, weights, offsets)
    for cut in cuts:
        offsets.copy_(cut)
        graph.replay()
        expect(out, by_a_loop(x, weights, offsets))
