"""Which subscripts of a source are of threads' own arrays."""

from __future__ import annotations

import pytest

from kernelwright.trace.own_arrays import own_subscripts


def listed(body: str, around: str = "") -> list[tuple[str, str, str]]:
    """Return what is indexed in a kernel's body, its unit, and what is done to it."""
    source = f"{around}\n__global__ void k(float* out, int n) {{\n{body}\n}}\n"
    found = own_subscripts(source)
    assert list(found) == sorted(found, key=lambda each: (each.line, each.column))
    lines = source.encode().splitlines()
    signs = [lines[each.line - 1][each.column - 1 :][:1] for each in found]
    assert sorted(signs) == [b"["] * (len(signs) // 2) + [b"]"] * (len(signs) // 2)
    return [
        (each.of, each.unit, each.did)
        for each, sign in zip(found, signs, strict=True)
        if sign == b"["
    ]


DECLARED = [
    "float v[8];",
    "const unsigned long long v[] = {1, 2};",
    "alignas(16) __half2 v[N / 2];",
    "float sum = 0.0f, *w[2], v[8];",
    "const unsigned w[2] = {n, f(n, 2)}, v[2] = {};",
    "wmma::fragment<wmma::matrix_a, 16, 16, 16, Pair<half, 2>, wmma::row_major> v[2];",
    "typename Of<T>::Pack v[PACKS] = {};",
    "float v /* µ: in one line */ [8];",
    "struct { float v[4]; } held; float v[8];",
]


@pytest.mark.parametrize("declaration", DECLARED)
def test_a_local_array_is_a_threads_own(declaration: str) -> None:
    assert listed(f"{declaration} out[0] = v[n];") == [("v", "elements", "reads")]


NOT_OWN = [
    "__shared__ float v[8];",
    "alignas(16) __shared__ float v[8];",
    "__shared__ __align__(16) float v[8];",
    "extern __shared__ float v[];",
    "static const float v[2] = {1, 2};",
    "float* v = out;",
    "struct Held { float v[8]; } held;",
    "float (&v)[8] = tile;",
    "return v[8];",
]


@pytest.mark.parametrize("declaration", NOT_OWN)
def test_what_is_not_is_not_listed(declaration: str) -> None:
    assert listed(f"{declaration} out[0] = v[n] + held.v[n] + held->v[n];") == []


@pytest.mark.parametrize("declared", ["__constant__ float v[8];", "float v[8];"])
def test_a_variable_outside_of_functions_is_nobodys_own(declared: str) -> None:
    assert listed("out[0] = v[n];", declared) == []
    inside = f"namespace ours {{ {declared} }}"
    assert listed("out[0] = ours::v[n];", inside) == []


def test_a_name_is_what_it_was_declared_as_there() -> None:
    body = """
    { __shared__ float v[8]; v[n] = 1; }
    { float v[8]; v[n] += 1; { int v[2]; out[0] = v[n - 1] == 2; } }
    __shared__ float v[8];
    out[0] = v[n];"""
    assert listed(body) == [("v", "elements", "writes"), ("v", "elements", "reads")]


def test_rows_are_told_from_elements_and_a_walk_from_the_first_is_left_out() -> None:
    body = """float tile[3][7];
    tile[n][ n +  1 ] = tile[0][n];
    ++tile[at[n]][0];"""
    assert listed(body) == [
        ("tile", "rows", "writes"),
        ("tile[n]", "elements", "writes"),
        ("tile", "rows", "reads"),
        ("tile", "rows", "writes"),
        ("tile[at[n]]", "elements", "writes"),
    ]


@pytest.mark.parametrize(
    ("expression", "count"),
    [
        ("&v[n]", 0),
        ("(&v[n])", 0),
        ("n & v[n]", 1),
        ("n && v[n]", 1),
        ("v[v[n]]", 2),
        ("v [n\n]", 1),
    ],
)
def test_an_address_is_no_access(expression: str, count: int) -> None:
    assert len(listed(f"int v[8]; int m = {expression};")) == count


def test_what_is_commented_out_or_a_macro_is_no_code() -> None:
    body = "// float v[8];\n#define W float v[8]; v[n]\nout[0] = v[n]; // v[2]"
    assert listed(body) == []
