"""An expression printed as CUDA C++: one kernel, each input read once.

A thread has 16 bytes of every tensor, which one instruction moves. Numbers are widened
to float (double stays), computed, and rounded once, when they are stored. For numbers
of 16 bits some functions are computed to 12 bits or so, which is what bounds memory and
not arithmetic: 8 results in 16 bytes leave each some 25 instructions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from solutions.fusion.expression import Node, in_order

C_TYPES = {
    torch.float16: "__half",
    torch.bfloat16: "__nv_bfloat16",
    torch.float32: "float",
    torch.float64: "double",
}
PACK_BYTES = 16
THREADS = 128
"""Of a block: a GELU of fp32 takes 2% longer with 256 (``benchmarks.fusion``)."""

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
_SPELLED_BF16 = {"tanh": "kw::tanh({0})"}

Places = tuple[str, ...]
"""Of each input: ``flat`` (as the result), ``row`` (one row of it, whole packs),
``ragged`` (one row, of any length), ``one`` number."""


class Division(NamedTuple):
    """What divides a number below 2^31 by multiplying: ``x * factor >> shift``.

    Source: Granlund and Montgomery, Division by Invariant Integers using
    Multiplication (1994), section 4.
    """

    divisor: int
    factor: int
    shift: int

    @classmethod
    def by(cls, divisor: int) -> Division:
        """Find the factor for a divisor from 1 to 2^31."""
        shift = 31 + (divisor - 1).bit_length()
        return cls(divisor, (1 << shift) // divisor + 1, shift)


def source(
    roots: Sequence[Node],
    dtype: torch.dtype,
    places: Places,
    whole: bool = False,
    huge: bool = False,
) -> str:
    """Print the kernel ``fused`` of some results.

    Its parameters: an address for each input, an address for each result, the number of
    elements, the length of a row, how to divide by its packs (``Division``), and what
    random numbers are drawn from.

    Args:
        roots: the results.
        dtype: of all tensors.
        places: where each input's number for an element is.
        whole: whether the elements fill their packs.
        huge: whether there are 2^31 packs or more.
    """
    wide = "double" if dtype == torch.float64 else "float"
    inputs = range(len(places))
    parameters = [
        *(f"const T* __restrict__ x{i}" for i in inputs),
        *(f"T* __restrict__ y{i}" for i in range(len(roots))),
        "long long n",
        "long long columns",
        "unsigned row_packs",
        "unsigned factor",
        "unsigned shift",
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
        index="long long" if huge else "unsigned",
        whole="true" if whole else "false",
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
    spellings |= _SPELLED_BF16 if dtype == torch.bfloat16 else {}
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
        elif one.name == "div" and _by_number(one) and dtype.itemsize == 2:
            # A tenth as many instructions, and 16 bits cannot tell.
            names[one] = f"t{len(lines)}"
            over = _number(1.0 / one.arguments[1].value)
            lines.append(
                f"    const W {names[one]} = {names[one.arguments[0]]} * {over};"
            )
        else:
            spelled = spellings.get(one.name, f"{one.name}{{f}}({{0}})")
            given = (names[argument] for argument in one.arguments)
            names[one] = f"t{len(lines)}"
            text = spelled.format(*given, f=ending)
            lines.append(f"    const W {names[one]} = {text};")
    lines += [f"    y{i} = {names[root]};" for i, root in enumerate(roots)]
    return lines


def _by_number(division: Node) -> bool:
    """Say whether something is divided by a number whose reciprocal is one too."""
    by = division.arguments[1]
    return by.name == "constant" and 1e-30 < abs(by.value) < 1e30


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
    call = {
        "flat": f"load(x{place}, first, n)",
        "row": f"load_row(x{place}, pack, row_packs, factor, shift)",
        "ragged": f"load_ragged(x{place}, first, columns)",
        "one": f"load_one(x{place})",
    }[kind]
    return f"    const Pack p{place} = {call};"


_DRAWN = "    const uint4 words = kw::philox<7>(pack, seed);"
_TEXT = """\
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math.h>

#include <kw/normal.cuh>
#include <kw/philox.cuh>
#include <kw/tanh.cuh>

using T = {ctype};
using W = {wide};
constexpr int WIDTH = 16 / sizeof(T);
using Index = {index};
constexpr bool WHOLE = {whole};  // no pack is less than full

struct alignas(16) Pack {{
    T lane[WIDTH];
}};

__device__ Pack load(const T* x, long long first, long long n) {{
    if (WHOLE || first + WIDTH <= n) return *reinterpret_cast<const Pack*>(x + first);
    Pack pack;
    for (int k = 0; k < WIDTH; ++k) {{
        pack.lane[k] = first + k < n ? x[first + k] : T(0.0f);
    }}
    return pack;
}}

// One row, the same for all rows: the pack's number is divided by the packs of a row.
__device__ Pack load_row(const T* x, unsigned pack, unsigned row_packs, unsigned factor,
                         unsigned shift) {{
    const unsigned row = static_cast<unsigned long long>(pack) * factor >> shift;
    return reinterpret_cast<const Pack*>(x)[pack - row * row_packs];
}}

__device__ Pack load_ragged(const T* x, long long first, long long columns) {{
    long long column = first % columns;
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
    if (WHOLE || first + WIDTH <= n) {{
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
    const Index block = blockIdx.x;
    const Index pack = block * blockDim.x + threadIdx.x;
    // Widened before the product: 2^31 elements are only 4 GB of halves.
    const long long first = static_cast<long long>(pack) * WIDTH;
    if (WHOLE ? pack >= static_cast<Index>(n / WIDTH) : first >= n) return;
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
