from __future__ import annotations

from kernelwright.cuda.source import FoundKernel, blank, find_kernels


def test_finds_kernels_with_their_scope_and_line() -> None:
    source = """
namespace outer { namespace inner::deep {
template <typename T, int N>
__global__ void __launch_bounds__(N * 2, 4) tile(const T* x) {}
} }
extern "C" __global__ void plain(int* out) { if (out) { out[0] = 1; } }
static __global__ void
later(float4 v);
"""
    assert find_kernels(source) == (
        FoundKernel("outer::inner::deep::tile", True, 4),
        FoundKernel("plain", False, 6),
        FoundKernel("later", False, 7),
    )


def test_comments_strings_and_directives_hold_no_kernels() -> None:
    source = r"""
// __global__ void a() {}
/* __global__ void b() {
*/
__device__ const char* text = "__global__ void c(";
__device__ const char* raw = R"x(__global__ void d() {})x";
#define KERNEL(name) __global__ void \
    name()
__device__ int separated = 1'000'000; __device__ char quote = '"';
__global__ void real(int n) {}
"""
    assert [kernel.name for kernel in find_kernels(source)] == ["real"]


def test_blank_keeps_every_line() -> None:
    source = "a /* 1\n2 */ b // c\n#if 1\n'x'"
    assert blank(source).count("\n") == source.count("\n")
    assert blank(source).split() == ["a", "b"]


def test_a_declaration_and_its_definition_are_one_kernel() -> None:
    source = "__global__ void k(int);\n__global__ void k(int n) {}"
    assert [kernel.name for kernel in find_kernels(source)] == ["k"]
