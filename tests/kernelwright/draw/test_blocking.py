"""The figure of a thread's sums: the trace's own counts, and what bounds the kernel."""

from __future__ import annotations

import pytest
import torch

import kernelwright as kw
from kernelwright.draw import blocking, explore_blocking


def test_loads_fall_as_the_square_of_sums_grows() -> None:
    said = str(explore_blocking(sums=(1, 4, 8)))
    assert "1 sum a thread, 16 x 16 a block" in said
    assert "arithmetic 1, shared memory 8, global memory 4. Bound by shared" in said
    assert "arithmetic 1, shared memory 2, global memory 1. Bound by shared" in said
    assert "arithmetic 1, shared memory 1, global memory 0.5. Bound by arith" in said


def test_a_traced_kernel_is_asked_only_for_what_is_shown() -> None:
    asked: list[int] = []

    def run(sums: int) -> object:
        asked.append(sums)
        return blocking._traced(sums)

    explorer = explore_blocking(run, sums=(2, 4))  # type: ignore[arg-type]
    assert not asked
    assert "4 sums a thread" in explorer.picture(2).words
    assert asked == [2]


@pytest.mark.parametrize("sums", [1, 4])
def test_the_kernel_that_is_traced_is_right(sums: int) -> None:
    side = 16 * sums
    a, b, c = torch.randn(side, 48), torch.randn(48, side), torch.empty(side, side)
    kernel = kw.cuda.compile(blocking.BLOCKED, backend="emulator")[f"blocked<{sums}>"]
    kernel[1, (16, 16)](a, b, c, 48)
    torch.testing.assert_close(c, a @ b, rtol=1e-5, atol=1e-5)
    kernel.trace[1, (16, 16)](a, b, c, 48).assert_clean()


def test_it_stands_alone_as_html() -> None:
    page = explore_blocking(sums=(1, 8)).figure()._repr_html_()
    assert page.count("data-frame") >= 2 and "http://www.w3.org/2000/svg" in page
    assert "for 128 products" in page
