"""The access map of a Triton kernel: who is a program, and which lanes have no part."""

from __future__ import annotations

import re
from typing import Any

import torch

import kernelwright as kw
from kernelwright.draw import access_map
from tests.kernelwright.trace.triton import kernels


def twice(n: int) -> Any:
    x, out = torch.arange(30.0), torch.empty(30)
    return kw.trace_triton(kernels.twice)[(4,)](x, out, n, BLOCK=8)


def test_the_slider_goes_through_programs_where_each_has_one_step() -> None:
    drawn = access_map(twice(30), columns=8)
    assert drawn.slider == "Program" and len(drawn.frames) == 1 + 4
    assert drawn.frames[0].words == "all accesses to out_ptr, by 4 programs in 1 step"
    assert drawn.frames[4].words == (
        "program 3 stores out_ptr[24] to out_ptr[29]; 1 sector per access, 1 at best; "
        "2 lanes masked off"
    )
    assert "Each of 30 elements is stored once." in drawn.caption
    assert drawn.caption.endswith("2 lanes masked off (dashed).")
    # The two lanes without an element are there, without being elements.
    (dashed,) = re.findall(r'class="kw-masked" d="([^"]*)"', drawn.frames[4].svg)
    assert dashed.count("M") == 2 and drawn.base.count("M") == 30
    labels = re.findall(r">(\d+)</text>", drawn.frames[0].svg)
    assert labels == ["0", "1", "2", "3"]


def test_lanes_outside_are_red() -> None:
    drawn = access_map(twice(32), columns=8)
    (red,) = re.findall(r'class="kw-wrong" d="([^"]*)"', drawn.frames[4].svg)
    assert red.count("M") == 2
    assert drawn.caption.endswith("2 lanes outside (red).")
    assert "kw-wrong" not in drawn.frames[3].svg


def test_a_kernel_of_several_steps_is_drawn_in_time() -> None:
    x, out = torch.ones(30), torch.ones(30)
    report = kw.trace_triton(kernels.accumulate)[(2,)](x, out, 30, BLOCK=16)
    drawn = access_map(report, "out_ptr", columns=16)
    assert drawn.slider == "Instruction" and len(drawn.frames) == 1 + 4
    assert drawn.frames[1].words.startswith("step 1 of 4, line ")
    assert "loads: 2 programs; the first (program 0) out_ptr[0] to out_ptr[15]" in (
        drawn.frames[1].words
    )
    by_program = access_map(report, "out_ptr", columns=16, by="program")
    assert len(by_program.frames) == 1 + 2
    assert "program 1 loads and stores" in by_program.frames[2].words


def test_programs_of_two_dimensions_keep_their_index() -> None:
    x, out = torch.randn(5, 7), torch.empty(7, 5)
    report = kw.trace_triton(kernels.transposed)[(2, 2)](x, out, 5, 7, R=4, C=4)
    drawn = access_map(report, columns=5)
    assert [f.words.split(" stores")[0] for f in drawn.frames[1:]] == [
        *("program 0, 0, 0", "program 1, 0, 0", "program 0, 1, 0", "program 1, 1, 0"),
    ]
    colours = re.findall(r"--c: var\((--kw-\w+)", drawn.frames[0].svg)
    assert len(set(colours)) == 4


def test_a_program_with_all_lanes_off_is_there() -> None:
    x, out = torch.arange(8.0), torch.empty(8)
    report = kw.trace_triton(kernels.twice)[(2,)](x, out, 8, BLOCK=8)
    words = access_map(report, columns=8).frames[2].words
    assert words.startswith("program 1 stores nothing; ")
    assert words.endswith("8 lanes masked off")
