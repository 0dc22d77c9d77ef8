"""One source for both: what the emulator runs, NVRTC compiles; no GPU needed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from kernelwright.cuda.nvrtc import compile_cubin
from kernelwright.emulator import Library, include_dir, toolchain

KERNELS = {
    "matmul_tiled.cu": "matmul_tiled",
    "layernorm_shuffle.cu": "layernorm",
    "gemm_wmma.cu": "gemm_wmma",
    "gemm_mma.cu": "gemm_mma",
    "flash_attention.cu": "flash_attention",
    "histogram.cu": "histogram",
}
COMPILERS = [n for n in ("g++", "clang++", "clang++-16") if shutil.which(n)]
FOLDER = Path(__file__).parents[2] / "kernels"


def test_every_kernel_is_listed_here():
    assert {p.name for p in FOLDER.glob("*.cu")} >= set(KERNELS)


@pytest.mark.parametrize("name", KERNELS)
def test_both_compilers_read_one_signature(name):
    source, kernel = (FOLDER / name).read_text(), KERNELS[name]
    on_cpu = Library.build(source, filename=name, kernels=[kernel])
    on_gpu = compile_cubin(source, filename=name, kernels=(kernel,), arch="sm_80")
    assert on_cpu.signatures == on_gpu.signatures
    assert on_gpu.resources(kernel).spill_bytes == 0


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_the_wrappers_become_the_instructions_that_they_name(arch):
    source = (FOLDER / "gemm_mma.cu").read_text()
    cubin = compile_cubin(
        source, filename="gemm_mma.cu", kernels=("gemm_mma",), arch=arch
    )
    sass = cubin.sass("gemm_mma")
    # cp.async of 16 bytes past L1, ldmatrix plain and transposed, mma m16n8k16.
    for instruction in ("LDGSTS.E.BYPASS.128", "LDSM.16.M88.4", "LDSM.16.MT88.2"):
        assert instruction in sass
    # 2 x 4 tiles of 16 x 8, twice for a depth of 32.
    assert sass.count("HMMA.16816.F32") == 16
    assert "LDGDEPBAR" in sass


def test_the_small_copies_and_the_other_types_compile_too():
    source = """#include <kw/cp_async.cuh>
#include <kw/ldmatrix.cuh>
#include <kw/mma.cuh>
__global__ void k(const float* x, float* out, bool inside) {
    __shared__ __align__(16) float tile[64];
    kw::cp_async<4>(&tile[threadIdx.x], x + threadIdx.x, inside);
    kw::cp_async<8>(&tile[32], x + 2);
    kw::cp_async_commit();
    kw::cp_async_wait_all();
    unsigned a[4], b[2], one[1];
    kw::ldmatrix(one, tile);
    kw::ldmatrix(b, tile);
    kw::ldmatrix_trans(a, tile);
    float d[4] = {};
    kw::mma_sync<__nv_bfloat16>(d, a, b, d);
    kw::mma_sync<kw::tf32>(d, a, b, d);
    out[threadIdx.x] = d[0] + d[1] + d[2] + d[3] + one[0];
}"""
    cubin = compile_cubin(source, filename="k.cu", kernels=("k",), arch="sm_80")
    sass = cubin.sass("k")
    assert "HMMA.16816.F32.BF16" in sass
    assert "HMMA.1688.F32.TF32" in sass
    Library.build(source, filename="k.cu", kernels=["k"])


@pytest.mark.parametrize("header", ["cstdint", "cstdio", "cmath", "cfloat", "climits"])
def test_c_headers_are_found_by_both(header):
    source = f"""#include <{header}>
__global__ void k(float* p) {{ p[0] = threadIdx.x; }}"""
    compile_cubin(source, filename="k.cu", kernels=("k",), arch="sm_80")
    Library.build(source, filename="k.cu", kernels=["k"])


@pytest.mark.parametrize("compiler", COMPILERS)
def test_the_emulator_itself_compiles_without_a_warning(compiler, tmp_path):
    native = toolchain.NATIVE
    names = ["kwemu/prelude.h", "cuda_fp16.h", "cuda_bf16.h", "mma.h"]
    names += ["cooperative_groups.h", "kw/cp_async.cuh", "kw/ldmatrix.cuh"]
    names += ["kw/mma.cuh", "cuda/std/cstdint", "math_constants.h", "cassert"]
    headers = tmp_path / "headers.cpp"
    headers.write_text("".join(f"#include <{name}>\n" for name in names))
    for source in (headers, native / "runtime" / "runtime.cpp"):
        flags = ["-std=c++17", "-march=native", "-fsyntax-only", "-Wall", "-Wextra"]
        flags += ["-Werror", f"-I{native / 'include'}", f"-I{include_dir()}"]
        done = subprocess.run(
            [compiler, *flags, str(source)], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
