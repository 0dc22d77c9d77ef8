"""The fragment map: drawn from what a kernel's lanes really hold."""

from __future__ import annotations

import pytest
import torch

import kernelwright as kw
from kernelwright.draw import fragment_map

WHO_HOLDS = """
#include <kw/ldmatrix.cuh>
#include <kw/mma.cuh>

__global__ void who_holds(const half* a, const half* b, float* held) {
    __shared__ __align__(16) half left[16 * 16], right[16 * 8];
    int lane = threadIdx.x;
    for (int i = lane; i < 256; i += 32) left[i] = a[i];
    for (int i = lane; i < 128; i += 32) right[i] = b[i];
    __syncthreads();
    unsigned x[4], y[2];
    float sum[4] = {};
    kw::ldmatrix(x, left + lane % 16 * 16 + lane / 16 * 8);
    kw::ldmatrix_trans(y, right + lane % 16 * 8);
    kw::mma_sync<half>(sum, x, y, sum);
    const half* of_a = reinterpret_cast<const half*>(x);
    const half* of_b = reinterpret_cast<const half*>(y);
    held += 16 * lane;
    for (int i = 0; i < 8; ++i) held[i] = __half2float(of_a[i]);
    for (int i = 0; i < 4; ++i) held[8 + i] = __half2float(of_b[i]);
    for (int i = 0; i < 4; ++i) held[12 + i] = sum[i];
}
"""
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def held_by(device: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return which elements of A, B and C each lane holds, on one back end."""
    backend: kw.cuda.Backend = "gpu" if device == "cuda" else "emulator"
    kernel = kw.cuda.compile(WHO_HOLDS, backend=backend)["who_holds"]
    held, sums = (torch.empty(32, 16, device=device) for _ in range(2))
    numbers = [torch.arange(n, device=device).half() for n in (256, 128)]
    kernel[1, 32](*numbers, held)
    a, b = torch.zeros(16, 16, device=device), torch.zeros(16, 8, device=device)
    a[:, 0], a[:, 1] = 8 * torch.arange(16), 1
    b[0], b[1] = 1, torch.arange(8)
    kernel[1, 32](a.half(), b.half(), sums)
    return held[:, :8].cpu(), held[:, 8:12].cpu(), sums[:, 12:].cpu()


@pytest.mark.parametrize("device", DEVICES)
def test_lanes_hold_what_the_caption_says(device: str) -> None:
    a, b, c = held_by(device)
    for lane in range(32):
        g, t = divmod(lane, 4)
        rows, columns = (g, g + 8), (2 * t, 2 * t + 1)
        wanted_a = [16 * r + k + u for u in (0, 8) for r in rows for k in columns]
        assert a[lane].tolist() == wanted_a
        assert b[lane].tolist() == [8 * (k + u) + g for u in (0, 8) for k in columns]
        assert c[lane].tolist() == [8 * r + k for r in rows for k in columns]


def test_a_frame_a_lane_and_the_row_that_it_named() -> None:
    held = held_by("cpu")
    kernel = kw.cuda.compile(WHO_HOLDS, backend="emulator")["who_holds"]
    numbers = [torch.arange(n).half() for n in (256, 128)]
    report = kernel.trace[1, 32](*numbers, torch.empty(32, 16))
    figure = fragment_map(*held, named=report)
    assert len(figure.frames) == 33
    words = figure.frames[14].words
    assert words.startswith("lane 13 = 4 * 3 + 1 holds A (3, 2-3) (11, 2-3) (3, 10-11)")
    assert "B (2-3, 3) (10-11, 3); C (3, 2) (3, 3) (11, 2) (11, 3)" in words
    assert words.endswith(
        "it named row 13 of A from column 0 and row 13 of B from column 0"
    )
    # Lanes 16 and up name the right half of A, and no row of B.
    assert figure.frames[30].words.endswith("it named row 13 of A from column 8")
    assert figure.frames[14].svg.count("<rect") == 8 + 4 + 4 + 2
    assert "red frame" in figure.caption
    assert "red frame" not in fragment_map(*held).caption


def test_what_is_no_fragment_is_refused() -> None:
    a, b, c = held_by("cpu")
    with pytest.raises(
        kw.ArgumentError, match=r"A is 16 x 16, and the 32 lanes hold 256"
    ):
        fragment_map(a % 16, b, c)
    with pytest.raises(kw.ArgumentError, match="B is 16 x 8, and the 31 lanes"):
        fragment_map(a, b[1:], c)
