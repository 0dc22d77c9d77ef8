"""An expression printed as CUDA C++: one kernel, each input read once.

A thread has 16 bytes of every tensor, which one instruction moves. Numbers are widened
to float (double stays), computed, and rounded once, when they are stored. For numbers
of 16 bits some functions are computed to 12 bits or so, which is what bounds memory and
not arithmetic: 8 results in 16 bytes leave each some 25 instructions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from solutions.fusion.expression import Node, in_order

C_TYPES = {
    torch.float16: "__half",
    torch.bfloat16: "__nv_bfloat16",
    torch.float32: "float",
    torch.float64: "double",
}
PACK_BYTES = 16
THREADS = 256

# How each operation is spelled; {f} ends a function of float: expf.
_SPELLED = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "neg": "-{0}",
    "lt": "{0} < {1} ? W(1) : W(0)",
    "le": "{0} <= {1} ? W(1) : W(0)",
    "eq": "{0} == {1} ? W(1) : W(0)",
    "where": "{0} != W(0) ? {1} : {2}",
    # A comparison with NaN is false: NaN goes through.
    "relu": "{0} < W(0) ? W(0) : {0}",
    "maximum": "{0} < {1} || {1} != {1} ? {1} : {0}",
    "minimum": "{1} < {0} || {1} != {1} ? {1} : {0}",
    "sign": "W(W(0) < {0}) - W({0} < W(0))",
    "sigmoid": "W(1) / (W(1) + exp{f}(-{0}))",
    "ndtr": "W(0.5) + W(0.5) * erf{f}(W(0.70710678118654752) * {0})",
    "abs": "fabs{f}({0})",
    "rsqrt": "rsqrt{f}({0})",
    "pow": "pow{f}({0}, {1})",
}
# The same, where the result is rounded to 16 bits.
_SPELLED_HALF = {
    "exp": "kw::exp2(W(1.4426950408889634) * {0})",
    "sigmoid": "kw::sigmoid({0})",
    "ndtr": "kw::normal_cdf({0})",
}

Places = tuple[str, ...]
"""Of each input: ``flat`` (as the result), ``row`` (one row of it), ``one`` number."""


def source(roots: Sequence[Node], dtype: torch.dtype, places: Places) -> str:
    """Print the kernel ``fused`` of some results.

    Its parameters: an address for each input, an address for each result, the number of
    elements, the length of a row, and what random numbers are drawn from.

    Args:
        roots: the results.
        dtype: of all tensors.
        places: where each input's number for an element is.
    """
    wide = "double" if dtype == torch.float64 else "float"
    inputs = range(len(places))
    parameters = [
        *(f"const T* __restrict__ x{i}" for i in inputs),
        *(f"T* __restrict__ y{i}" for i in range(len(roots))),
        "long long n",
        "long long columns",
        "unsigned long long seed",
    ]
    values = ", ".join(f"W x{i}" for i in inputs)
    results = ", ".join(f"W& y{i}" for i in range(len(roots)))
    return _TEXT.format(
        ctype=C_TYPES[dtype],
        wide=wide,
        arguments=", ".join(filter(None, ("unsigned bits", values, results))),
        body="\n".join(_body(roots, dtype)),
        parameters=",\n                      ".join(parameters),
        loads="\n".join(_load(i, place) for i, place in enumerate(places)),
        declared="\n".join(f"    Pack r{i};" for i in range(len(roots))),
        drawn=_DRAWN if is_random(roots) else "    const uint4 words = {};",
        given=", ".join(
            [
                "bits(words, k)",
                *(f"W(p{i}.lane[k])" for i in inputs),
                *(f"w{i}" for i in _of(roots)),
            ]
        ),
        wides="\n".join(f"        W w{i};" for i in _of(roots)),
        rounded="\n".join(f"        r{i}.lane[k] = T(w{i});" for i in _of(roots)),
        stores="\n".join(f"    store(r{i}, y{i}, first, n);" for i in _of(roots)),
    )


def is_random(roots: Sequence[Node]) -> bool:
    """Say whether some results depend on random numbers."""
    return any(one.name == "kept" for one in in_order(roots))


def _of(roots: Sequence[Node]) -> range:
    return range(len(roots))


def _body(roots: Sequence[Node], dtype: torch.dtype) -> list[str]:
    """Return a line for each operation; equal ones were one node already."""
    spellings = _SPELLED | (_SPELLED_HALF if dtype.itemsize == 2 else {})
    ending = "" if dtype == torch.float64 else "f"
    names: dict[Node, str] = {}
    lines: list[str] = []
    for one in in_order(roots):
        if one.input is not None:
            names[one] = one.name
        elif one.name == "constant":
            names[one] = _number(one.value)
        elif one.name == "kept":
            names[one] = _kept(one.arguments[0].value, dtype)
        else:
            spelled = spellings.get(one.name, f"{one.name}{{f}}({{0}})")
            given = (names[argument] for argument in one.arguments)
            names[one] = f"t{len(lines)}"
            text = spelled.format(*given, f=ending)
            lines.append(f"    const W {names[one]} = {text};")
    lines += [f"    y{i} = {names[root]};" for i, root in enumerate(roots)]
    return lines


def _kept(p: float, dtype: torch.dtype) -> str:
    """Return 0 or the scale; p is rounded to what the random bits can tell apart."""
    steps = 2**16 if dtype.itemsize == 2 else 2**32
    dropped = min(round(p * steps), steps - 1)
    if p >= 1.0:
        return "W(0)"
    limit = dropped * (2**32 // steps)
    return f"(bits < {limit}u ? W(0) : W({steps / (steps - dropped)!r}))"


def _number(value: float) -> str:
    if math.isinf(value) or math.isnan(value):
        spelled = "NAN" if math.isnan(value) else "INFINITY"
        return f"W({'-' if value < 0 else ''}{spelled})"
    return f"W({value!r})"


def _load(place: int, kind: str) -> str:
    if kind == "flat":
        return f"    const Pack p{place} = load(x{place}, first, n);"
    if kind == "row":
        return f"    const Pack p{place} = load_row(x{place}, first, columns);"
    return f"    const Pack p{place} = load_one(x{place});"


_DRAWN = "    const uint4 words = kw::philox(first / WIDTH, seed);"
_TEXT = """\
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math.h>

#include <kw/normal.cuh>
#include <kw/philox.cuh>

using T = {ctype};
using W = {wide};
constexpr int WIDTH = 16 / sizeof(T);

struct alignas(16) Pack {{
    T lane[WIDTH];
}};

__device__ Pack load(const T* x, long long first, long long n) {{
    if (first + WIDTH <= n) return *reinterpret_cast<const Pack*>(x + first);
    Pack pack;
    for (int k = 0; k < WIDTH; ++k) {{
        pack.lane[k] = first + k < n ? x[first + k] : T(0.0f);
    }}
    return pack;
}}

// One row, the same for all rows.
__device__ Pack load_row(const T* x, long long first, long long columns) {{
    long long column;
    if ((first | columns) >> 32 == 0) {{  // a division of half the width
        column = static_cast<unsigned>(first) % static_cast<unsigned>(columns);
    }} else {{
        column = first % columns;
    }}
    if (columns % WIDTH == 0) return *reinterpret_cast<const Pack*>(x + column);
    Pack pack;
    for (int k = 0; k < WIDTH; ++k) {{
        pack.lane[k] = x[column];
        column = column + 1 < columns ? column + 1 : 0;
    }}
    return pack;
}}

__device__ Pack load_one(const T* x) {{
    Pack pack;
    for (int k = 0; k < WIDTH; ++k) pack.lane[k] = x[0];
    return pack;
}}

__device__ void store(const Pack& pack, T* y, long long first, long long n) {{
    if (first + WIDTH <= n) {{
        *reinterpret_cast<Pack*>(y + first) = pack;
        return;
    }}
    for (int k = 0; k < WIDTH; ++k) {{
        if (first + k < n) y[first + k] = pack.lane[k];
    }}
}}

// Random bits of an element: 16 of them, in front, where 8 share four words.
__device__ unsigned bits(const uint4& words, int k) {{
    const unsigned word[4] = {{words.x, words.y, words.z, words.w}};
    if (WIDTH == 8) return k % 2 ? word[k / 2] : word[k / 2] << 16;
    return word[k % 4];
}}

__device__ void element({arguments}) {{
{body}
}}

extern "C" __global__ void fused({parameters}) {{
    // Widened before the product: 2^31 elements are only 4 GB of halves.
    const long long block = blockIdx.x;
    const long long first = (block * blockDim.x + threadIdx.x) * WIDTH;
    if (first >= n) return;
{loads}
{declared}
{drawn}
    for (int k = 0; k < WIDTH; ++k) {{
{wides}
        element({given});
{rounded}
    }}
{stores}
}}
"""
