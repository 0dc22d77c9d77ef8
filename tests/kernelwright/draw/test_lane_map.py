"""The lane map: from traces of two trees, and of a kernel that does nothing."""

from __future__ import annotations

import pytest
import torch

import kernelwright as kw
from kernelwright.draw import lane_map
from kernelwright.draw.lanes import steps_of

TREE = """
__global__ void tree(const float* x, float* out) {
    __shared__ float part[64];
    int t = threadIdx.x;
    part[t] = x[t];
    __syncthreads();
    for (int stride = FIRST; STAYS; stride NEXT) {
        if (WORKS) {
            part[t] += part[t + stride];
        }
        __syncthreads();
    }
    if (t == 0) out[0] = part[0];
}
"""
ORDERS = {
    "scattered": ("1", "stride < 64", "*= 2", "t % (2 * stride) == 0"),
    "together": ("32", "stride > 0", "/= 2", "t < stride"),
}


@pytest.fixture(scope="module", params=ORDERS)
def traced(request: pytest.FixtureRequest) -> tuple[str, object]:
    text = TREE
    for name, value in zip(
        ("FIRST", "STAYS", "NEXT", "WORKS"), ORDERS[request.param], strict=True
    ):
        text = text.replace(name, value)
    kernel = kw.cuda.compile(text, backend="emulator")["tree"]
    return request.param, kernel.trace[1, 64](torch.randn(64), torch.empty(1))


def test_the_lanes_of_each_step(traced: tuple[str, object]) -> None:
    order, report = traced
    steps = steps_of(report)
    working = [sum(map(len, step.values())) for step in steps]
    assert working == [32, 16, 8, 4, 2, 1]
    assert len(steps[0]) == (2 if order == "scattered" else 1)
    lanes = {"scattered": [0, 16], "together": list(range(4))}[order]
    step = {"scattered": steps[3], "together": steps[3]}[order]
    assert step[0] == lanes


def test_the_figure_says_and_shows_them(traced: tuple[str, object]) -> None:
    order, report = traced
    figure = lane_map(report, report)
    assert len(figure.frames) == 6
    words = figure.frames[2].words
    assert words.startswith("step 3 of 6: tree: 8 of ") and words.count("tree") == 2
    carried = 64 if order == "scattered" else 32
    assert f"8 of {carried} lanes work" in words
    page = figure._repr_html_()
    assert (
        "kw-waste" in page
        and "aria-labelledby" in page
        and "http://" not in (page.replace("http://www.w3.org/2000/svg", ""))
    )


def test_a_kernel_that_does_nothing_yet(traced: tuple[str, object]) -> None:
    empty = kw.cuda.compile("__global__ void later(float* out) {}", backend="emulator")
    report = empty["later"].trace[1, 64](torch.empty(1))
    assert "no store to shared memory was traced" in str(lane_map(report))
    assert "later does nothing yet" in lane_map(traced[1], report).frames[0].words
