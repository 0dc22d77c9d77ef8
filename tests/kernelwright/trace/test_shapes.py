"""What declarations tell of shared arrays, and what they leave open."""

from __future__ import annotations

import pytest

from kernelwright.trace.shapes import indices, shape_of, shapes_in


@pytest.mark.parametrize(
    ("declared", "shapes"),
    [
        ("__shared__ float tile[32][32 + 1];", {(32, 33)}),
        ("__shared__ float tile[8][256 + 4], other[2];", {(8, 260)}),
        ("constexpr int A = 16, B = 2 * A;\n__shared__ int tile[A][B];", {(16, 32)}),
        ("#define SIDE 64u\n__shared__ float tile[SIDE / 2];", {(32,)}),
        ("__shared__ alignas(16) float tile[4 << 3]; // tile[9]", {(32,)}),
        # Which of the two, or how many, does not stand there.
        ("__shared__ int tile[2][3]; }{ __shared__ int tile[3][2];", {(2, 3), (3, 2)}),
        ("__shared__ T tile[sizeof(T)][N];", {()}),
        ("extern __shared__ float tile[];", set()),
    ],
)
def test_extents_are_computed_where_they_are_numbers(declared, shapes):
    assert shapes_in(declared).get("tile", set()) == shapes


def test_a_shape_is_sure_where_its_elements_fill_the_array():
    assert shape_of(4224, {(32, 33)}) == ((32, 33), 4)
    for size, declared in ((4223, {(32, 33)}), (24, {(2, 3), (3, 2)}), (24, {()})):
        assert shape_of(size, declared) == ((), 1)


def test_an_element_is_named_by_its_indices():
    assert indices((32, 33), 34) == "[1][1]"
    assert indices((2, 3, 4), 23) == "[1][2][3]"
    # Past the last row, and before the first.
    assert (indices((32, 32), 1024), indices((32, 32), -1)) == ("[32][0]", "[-1][31]")
    assert indices((), 7) == "[7]"
