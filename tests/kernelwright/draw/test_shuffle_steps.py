"""Shuffle steps: recorded from a kernel, they say what came from where."""

from __future__ import annotations

import operator

import pytest
import torch

import kernelwright as kw
from kernelwright.cuda import Kernel
from kernelwright.draw import shuffle_steps
from kernelwright.draw.exchanges import make_shuffles, record_shuffles, source_of

WARP_SUM = """
__global__ void warp_sum(const float* x, float* out) {
    float v = x[blockIdx.x * blockDim.x + threadIdx.x];
    for (int d = %d; d > 0; d /= 2) {
        v += __shfl_down_sync(0xffffffff, v, d);
    }
    if (threadIdx.x == 0) out[0] = v;
}
"""
BLOCK_SUM = """
__global__ void block_sum(const float* x, float* out) {
    __shared__ float parts[32];
    float v = x[threadIdx.x];
    for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(~0u, v, d);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x < 32) {
        v = threadIdx.x < blockDim.x / 32 ? parts[threadIdx.x] : 0;
        for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(~0u, v, d);
        if (threadIdx.x == 0) out[0] = v;
    }
}
"""
KINDS = """
__global__ void kinds(const int* x, int* out) {
    int v = x[threadIdx.x];
    v = max(v, __shfl_xor_sync(~0u, v, 1));
    v = max(v, __shfl_up_sync(~0u, v, 2, 8));
    v = __shfl_sync(~0u, v, 31);
    printf("the reader's own words\\n");
    out[threadIdx.x] = v;
}
"""


def compiled(source: str, name: str) -> Kernel:
    return kw.cuda.compile(source, backend="emulator")[name]


def test_a_kernels_own_shuffles() -> None:
    kernel = compiled(WARP_SUM % 16, "warp_sum")
    x, out = torch.arange(64.0), torch.tensor([-1.0])
    drawn = shuffle_steps(kernel[2, 32], x, out, block=1)
    assert out.item() == -1, "the reader's own tensor was changed"
    assert drawn.caption == (
        "warp_sum, block 1, warp 0: after 5 shuffles lane 0 holds the sum of 32 lanes."
    )
    assert len(drawn.frames) == 1 + 5
    assert drawn.frames[1].words == (
        "shuffle 1, line 5: __shfl_down_sync by 16; lane 0 gets 48 from lane 16 and "
        "then holds 80, made of 2 lanes"
    )
    assert f"holds {sum(range(32, 64))}, made of 32 lanes" in drawn.frames[5].words
    # 16 lanes matter after the first shuffle, 8 after the second, 1 in the end.
    used = [frame.svg.count('class="kw-used"') for frame in drawn.frames[1:]]
    assert used == [16, 8, 4, 2, 1]


def test_lost_lanes_are_named() -> None:
    kernel = compiled(WARP_SUM % 8, "warp_sum")
    drawn = shuffle_steps(kernel[1, 32], torch.arange(32.0), torch.empty(1))
    assert "after 4 shuffles lane 0 holds the sum of 16 lanes" in drawn.caption
    assert "what lanes 16, 17, 18, 19, 20, 21, … had never reaches it" in drawn.caption


def test_a_second_round_begins_with_new_values() -> None:
    kernel = compiled(BLOCK_SUM, "block_sum")
    x, out = torch.rand(256) + 0.1, torch.empty(1)
    first = shuffle_steps(kernel[1, 256], x, out)
    assert "; then, with new values, after 5 shuffles lane 0" in first.caption
    assert f"holds {x.sum().item():.4f}"[:10] in first.frames[10].words
    assert "new values" in first.base
    assert len(shuffle_steps(kernel[1, 256], x, out, warp=1).frames) == 1 + 5


def test_the_other_kinds_and_narrow_segments(
    capsys: pytest.CaptureFixture[str],
) -> None:
    kernel = compiled(KINDS, "kinds")
    x = torch.arange(32, dtype=torch.int32)
    made = record_shuffles(kernel[1, 32], (x, torch.empty_like(x)), block=0, warp=0)
    assert [(s.kind, s.by, s.line) for s in made] == [
        ("xor", 1, 4),
        ("up", 2, 5),
        ("idx", 31, 6),
    ]
    assert made[0].lanes[4].source == 5
    assert (made[1].lanes[9].source, made[1].lanes[10].source) == (9, 8)
    assert {e.got for e in made[2].lanes.values()} == {31.0}
    assert capsys.readouterr().out == ""
    # The recorded values agree with the sources that the figure draws.
    for shuffle in made:
        for exchange in shuffle.lanes.values():
            assert exchange.got == shuffle.lanes[exchange.source].gave


@pytest.mark.parametrize(
    ("kind", "lane", "by", "width", "source"),
    [
        ("down", 20, 16, 32, 20),
        ("down", 6, 2, 8, 6),
        ("up", 1, 2, 32, 1),
        ("up", 9, 1, 8, 8),
        ("xor", 3, 4, 32, 7),
        ("idx", 13, 2, 8, 10),
    ],
)
def test_sources(kind: str, lane: int, by: int, width: int, source: int) -> None:
    assert source_of(kind, lane, by, width) == source


def test_given_values() -> None:
    values = [(7 * lane) % 32 for lane in range(32)]
    drawn = shuffle_steps(values, kind="xor", combine=max)
    assert drawn.caption == (
        "A warp: after 5 shuffles every lane holds the maximum of 32 lanes."
    )
    scan = make_shuffles(range(8), (1, 2, 4), "up", operator.add)
    assert [e.gave for e in scan[1].lanes.values()] == [0, 1, 3, 5, 7, 9, 11, 13]


def test_a_kernel_without_shuffles_and_a_warp_that_is_not_there() -> None:
    kernel = compiled("__global__ void none(float* x) {}", "none")
    assert "no access to the shuffles" in str(
        shuffle_steps(kernel[1, 32], torch.zeros(1))
    )
    with pytest.raises(kw.ArgumentError, match="warps 0 to 1"):
        shuffle_steps(kernel[1, 64], torch.zeros(1), warp=2)
    with pytest.raises(kw.ArgumentError, match="got 33 values"):
        shuffle_steps(range(33))
    with pytest.raises(kw.ArgumentError, match="kind is 'left'"):
        shuffle_steps(range(32), kind="left")
