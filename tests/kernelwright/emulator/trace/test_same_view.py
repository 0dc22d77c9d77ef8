"""A source cannot tell by its macros, sizes or constants that it is traced.

What holds: after the prelude the preprocessor knows the same macros in both builds, and
`#if` takes the same branches. What does not: time; addresses; and that copying a vector
type is not trivial in the traced build (`std::is_trivially_copyable`). A grade never
rests on it: values are judged in the plain build, in another process.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace

import pytest
import torch

import kernelwright as kw
from kernelwright.emulator import toolchain

SUSPECTS = ("KWEMU_TRACED", "__SANITIZE_THREAD__", "_GLIBCXX_TSAN", "KWEMU_WHOLE",
            "KWEMU_NOTE_ATOMIC", "__SANITIZE_ADDRESS__", "inline")  # fmt: skip

ASKS = (
    "#include <cuda_fp16.h>\n"
    "#ifndef __has_feature\n#define __has_feature(x) 0\n#endif\n"
    "__global__ void k(int* out) {\n    int seen = 0;\n"
    + "".join(
        f"#ifdef {name}\n    seen |= {1 << bit};\n#endif\n"
        for bit, name in enumerate(SUSPECTS)
    )
    + """#if __has_feature(thread_sanitizer)
    seen |= 1 << 20;
#endif
    seen |= (sizeof(float4) != 16 || alignof(float4) != 16) << 21;
    seen |= (sizeof(half2) != 4 || sizeof(double2) != 16) << 22;
    out[threadIdx.x] = seen;
}"""
)

INCLUDES = """#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <mma.h>
#include <cooperative_groups.h>
#include <kw/cp_async.cuh>
#include <kw/ldmatrix.cuh>
#include <kw/mma.cuh>
"""


def compilers():
    return [name for name in ("g++", "clang++", "clang++-16") if shutil.which(name)]


def macros(compiler, path):
    """List every macro that is defined at the end of a source."""
    command = [compiler.path, *compiler.flags, *toolchain.prelude_options(compiler)]
    command += [*toolchain.include_options(), "-x", "c++", str(path), "-E", "-dM"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines())


@pytest.mark.parametrize("name", compilers())
def test_both_builds_leave_the_author_the_same_macros(name, tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", name)
    path = tmp_path / "kernel.cu"
    path.write_text(INCLUDES)
    plain = toolchain.find_compiler()
    seen = macros(plain, path)
    assert len(seen) > 500
    assert macros(replace(plain, traced=True), path) == seen
    assert not {text.split()[1].split("(")[0] for text in seen} & set(SUSPECTS)


@pytest.mark.parametrize("name", compilers())
def test_conditional_text_takes_the_same_branches(trace, name, monkeypatch):
    monkeypatch.setenv("CXX", name)
    plain, traced = torch.full((2, 32), -1, dtype=torch.int32)
    kw.cuda.compile(ASKS, backend="emulator")["k"][1, 32](plain)
    report = trace(ASKS, "k", 1, 32, traced)
    assert report.global_store.requests == 1
    assert plain.eq(0).all()
    assert traced.eq(0).all()


def test_an_aligned_struct_of_the_authors_still_moves_whole(trace):
    source = """template <class T> struct alignas(16) Named { T name[16 / sizeof(T)]; };
    __global__ void k(const Named<float>* x, Named<float>* out) {
        out[threadIdx.x] = x[threadIdx.x];
    }"""
    x, out = torch.randn(128), torch.zeros(128)
    report = trace(source, "k", 1, 32, x, out)
    assert [a.width for a in report.lines] == [16, 16]
    torch.testing.assert_close(out, x)
