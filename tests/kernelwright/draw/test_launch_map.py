"""The launch map: it says who wrote what, and the picture says the same."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
import torch

import kernelwright as kw
from kernelwright.draw import LaunchMap, launch_map

COPY = """
__global__ void copy(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    %s
}
"""


def draw(body: str, n: int, grid: int = 2, block: int = 8) -> LaunchMap:
    kernel = kw.cuda.compile(COPY % body, backend="emulator")["copy"]
    x, out = torch.arange(float(n)), torch.full((n,), -1.0)
    drawn = launch_map(kernel[grid, block], x, out, n)
    assert bool((out == -1).all()), "the reader's own tensor was changed"
    return drawn


def test_guarded() -> None:
    drawn = draw("if (i < n) out[i] = x[i];", 14)
    assert drawn.writes.by_thread == (*((i,) for i in range(14)), (), ())
    assert (drawn.unwritten, drawn.shared, drawn.outside) == ([], [], [])
    assert str(drawn) == (
        "copy: 2 blocks of 8 threads, 14 elements: every element has one writer; "
        "2 threads wrote nothing."
    )


def test_past_the_end() -> None:
    drawn = draw("out[i] = x[i];", 14)
    assert drawn.outside == [14, 15]
    assert "outside of the array: out[14..15]" in str(drawn)
    assert drawn.svg().count("kw-wrong") == 2


def test_before_the_start() -> None:
    assert draw("out[i - 1] = x[i];", 16).outside == [-1]


def test_unwritten_and_shared() -> None:
    drawn = draw("out[threadIdx.x] = x[i];", 16)
    assert drawn.unwritten == list(range(8, 16))
    assert drawn.shared == list(range(8))
    assert "nobody writes out[8..15]" in str(drawn)
    assert "several threads write out[0..7]" in str(drawn)
    assert drawn.svg().count("×2") == 8


def test_grid_stride_writes_several() -> None:
    drawn = draw("for (; i < n; i += 16) out[i] = x[i];", 40)
    assert drawn.writes.by_thread[3] == (3, 19, 35)
    assert "every element has one writer." in str(drawn)


def test_an_empty_body_and_an_empty_array() -> None:
    assert draw("", 5).unwritten == [0, 1, 2, 3, 4]
    assert "0 elements" in str(draw("if (i < n) out[i] = x[i];", 0))


def test_the_picture_is_well_formed_and_says_the_same() -> None:
    drawn = draw("if (i < n) out[i] = x[i];", 14)
    svg = ElementTree.fromstring(drawn.svg())
    space = "{http://www.w3.org/2000/svg}"
    title = svg.find(f"{space}title")
    assert title is not None and title.text == str(drawn)
    assert svg.get("aria-labelledby") == title.get("id")
    elements = [g for g in svg.iter(f"{space}g") if g.get("data-element")]
    labels = [g.findtext(f"{space}text") for g in elements]
    assert labels == [str(i % 8) for i in range(14)]


def test_two_figures_of_a_page_share_no_id_and_fetch_nothing() -> None:
    drawn = draw("if (i < n) out[i] = x[i];", 14)
    page = drawn._repr_html_() + drawn._repr_html_()
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids)) == 8
    assert not re.search(r'(src|href)="|url\(|import', page)


@pytest.mark.parametrize(
    ("launch", "message"),
    [((64, 8), "512 threads; a picture holds 256"), (((1, 2), 8), "one dimension")],
)
def test_a_launch_that_is_no_picture_is_refused(
    launch: tuple[object, object], message: str
) -> None:
    kernel = kw.cuda.compile(COPY % "", backend="emulator")["copy"]
    with pytest.raises(kw.ArgumentError, match=message):
        launch_map(kernel[launch], torch.zeros(4), torch.zeros(4), 4)


def test_two_outputs_are_refused() -> None:
    kernel = kw.cuda.compile(COPY.replace("const ", "") % "", backend="emulator")
    with pytest.raises(kw.ArgumentError, match="writes to 2 of its parameters"):
        launch_map(kernel["copy"][1, 1], torch.zeros(4), torch.zeros(4), 4)


@pytest.mark.gpu
def test_tensors_on_a_gpu_are_copied_to_the_emulator() -> None:
    body = "if (i < n) out[i] = x[i];"
    kernel = kw.cuda.compile(COPY % body)["copy"]
    x = torch.arange(5.0, device="cuda")
    drawn = launch_map(kernel[1, 8], x, torch.empty_like(x), 5)
    assert drawn.unwritten == []


def test_a_kernel_without_a_launch_says_how_one_is_written() -> None:
    module = kw.cuda.compile("__global__ void k(float* x) {}", backend="emulator")
    with pytest.raises(kw.LaunchError, match=r"k\[blocks, 256\]"):
        launch_map(module["k"], torch.zeros(4))
