"""A local variable that nobody set does not pass for a zero."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import kernelwright as kw
from kernelwright.emulator import Library, toolchain

COMPILER = toolchain.find_compiler()
FILLED = pytest.mark.skipif(
    not COMPILER.fills_locals, reason="this compiler does not fill locals"
)

FORGOTTEN = {
    "a sum": ("float", "float sum; for (int i = 0; i < n; ++i) sum += x[i];"),
    "a count": ("int", "int sum; for (int i = 0; i < n; ++i) sum += x[i] > 0;"),
    "a sum in 64 bits": (
        "double",
        "double sum; for (int i = 0; i < n; ++i) sum += x[i];",
    ),
    "a tile in registers": (
        "float",
        "float tile[4][4]; for (int i = 0; i < n; ++i) tile[i % 4][i / 4 % 4] += x[i]; "
        "float sum = tile[1][2];",
    ),
    "a vector": (
        "float",
        "float4 four; for (int i = 0; i < n; ++i) four.y += x[i]; float sum = four.y;",
    ),
}


@FILLED
@pytest.mark.filterwarnings("ignore::kernelwright.errors.KernelWarning")
@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("case", FORGOTTEN)
def test_a_sum_that_was_not_begun_comes_out_wild(case, traced):
    ctype, body = FORGOTTEN[case]
    source = f"""__global__ void k(const float* x, {ctype}* out, int n) {{
    {body}
    out[threadIdx.x] = sum;
}}"""
    kernel = kw.cuda.compile(source, backend="emulator")["k"]
    dtype = {"float": np.float32, "double": np.float64, "int": np.int32}[ctype]
    x, out = np.ones(16, np.float32), np.zeros(64, dtype)
    (kernel.trace if traced else kernel)[1, 64](x, out, 16)
    # Not even near to a right one, and the same for each thread and launch.
    assert not (np.abs(out.astype(np.float64)) < 1e6).any()
    assert out.tobytes() == out[:1].tobytes() * 64


@FILLED
def test_half_precision_and_a_pointer_are_wild_too():
    source = """#include <cuda_fp16.h>
#include <cuda_bf16.h>
__global__ void k(float* out, int n) {
    __half a[2];
    __nv_bfloat16 b[2];
    const float* p;
    if (n < 0) p = out, a[0] = a[1] = 1, b[0] = b[1] = 1;
    out[0] = a[n], out[1] = b[n];
    out[2] = p == nullptr;
}"""
    kernel = kw.cuda.compile(source, backend="emulator")["k"]
    out = np.zeros(3, np.float32)
    kernel[1, 1](out, 1)
    assert not abs(out[0]) < 1e4
    assert not abs(out[1]) < 1e4
    assert out[2] == 0


@FILLED
def test_what_fills_locals_is_in_the_keys_of_the_cache(monkeypatch):
    source = "__global__ void k(float* out) { out[0] = 1; }"

    def built_with(compiler):
        monkeypatch.setattr(toolchain, "find_compiler", lambda: compiler)
        library = Library.build(source, filename="k.cu", kernels=["k"])
        return library._path, toolchain.prelude_options(compiler)

    plain = replace(COMPILER, fills_locals=False)
    assert toolchain.WILD_LOCALS in COMPILER.flags
    assert toolchain.WILD_LOCALS not in plain.flags
    for one, other in zip(built_with(COMPILER), built_with(plain), strict=True):
        assert one != other


@FILLED
def test_a_warning_still_names_what_was_not_set():
    source = """__global__ void k(const float* x, float* out) {
    float sum;
    sum += x[0];
    out[0] = sum;
}"""
    library = Library.build(source, filename="k.cu", kernels=["k"])
    warnings = [w for w in library.warnings if w.severity == "warning"]
    assert [(w.line, "sum" in w.message) for w in warnings] == [(3, True)]


@pytest.mark.parametrize(
    ("version", "fills"),
    [
        ("g++ (Debian 10.2.1-6) 10.2.1 20210110", False),
        ("g++-11 (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0", False),
        ("g++ (Debian 12.2.0-14) 12.2.0", True),
        ("g++ (GCC) 15.1.0", True),
        ("Ubuntu clang version 14.0.0-1ubuntu1.1", True),
    ],
)
def test_which_compilers_fill_locals(tmp_path, version, fills):
    compiler = tmp_path / "g++"
    compiler.write_text(f"#!/bin/sh\necho '{version}'\n")
    compiler.chmod(0o755)
    assert toolchain._describe(str(compiler)).fills_locals == fills
