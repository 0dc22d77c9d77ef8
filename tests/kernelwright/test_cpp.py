"""Functions in C++ for the host, called with tensors."""

from __future__ import annotations

import pytest
import torch

import kernelwright as kw

SOURCE = """
#include <cstdint>
#include <cstddef>
// extern "C" void remarked(int n) {
static float scaled(float x, double by) { return float(x * by); }
extern "C" void scale(const float *x, float* out, double by, std::size_t n) {
    const char* said = "extern \\"C\\" void said(int n) {";
    for (std::size_t i = 0; i < n; i++) out[i] = scaled(x[i], by) + 0 * said[0];
}
extern "C" void signs(int8_t* low, uint16_t *wide, std::int64_t* far, bool up) {
    low[0] = up ? -1 : 1; wide[0] = 65535; far[0] = -5;
}
"""


def test_functions_are_called_with_tensors_and_numbers() -> None:
    made = kw.cpp.compile(SOURCE)
    assert list(made) == ["scale", "signs"]
    x, out = torch.arange(5.0), torch.empty(5)
    made["scale"](x, out, 0.5, 5)
    assert out.tolist() == [0.0, 0.5, 1.0, 1.5, 2.0]
    wanted = "scale(const float*, float*, double, unsigned long)"
    assert str(made["scale"].signature) == wanted
    low, wide = torch.zeros(1, dtype=torch.int8), torch.zeros(1, dtype=torch.uint16)
    far = torch.zeros(1, dtype=torch.int64)
    made["signs"](low, wide, far, True)
    assert (low.item(), wide.item(), far.item()) == (-1, 65535, -5)


def test_arguments_are_checked_as_a_kernels_are() -> None:
    scale = kw.cpp.compile(SOURCE)["scale"]
    x = torch.arange(5.0)
    with pytest.raises(kw.ArgumentError, match="float64"):
        scale(x.double(), x, 0.5, 5)
    with pytest.raises(kw.ArgumentError, match="takes 4 arguments and was given 3"):
        scale(x, x, 5)


def test_what_does_not_compile_is_told_on_its_line() -> None:
    with pytest.raises(kw.CompileError) as caught:
        kw.cpp.compile('\nextern "C" void f(int n) {\n  m = n;\n}\n')
    assert caught.value.diagnostics[0].line == 3
    by_value = 'struct P { int x; };\nextern "C" void f(P p) { p.x++; }\n'
    with pytest.raises(kw.CompileError, match="f takes a P; wanted pointers and"):
        kw.cpp.compile(by_value)


@pytest.mark.parametrize(
    "source",
    [
        "void f(int n) { (void)n; }",
        'extern "C" int f(int n) { return n; }',
        'extern "C" {\nvoid f(int n) { (void)n; }\n}',
    ],
)
def test_what_python_cannot_call_is_said(source: str) -> None:
    with pytest.raises(
        kw.CompileError, match='Begin the function with extern "C" void'
    ):
        kw.cpp.compile(source)


def test_a_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    wanted = r"C\+\+ for the host needs g\+\+ .*'no-such-compiler'.* apt-get install g"
    with pytest.raises(kw.ToolchainError, match=wanted):
        kw.cpp.compile(SOURCE)


def test_a_processor_that_the_emulator_does_not_know_will_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert list(kw.cpp.compile(SOURCE)) == ["scale", "signs"]
