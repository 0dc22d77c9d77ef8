"""A source that does not compile points at the author's line, in plain words."""

from __future__ import annotations

import shutil

import pytest

from kernelwright.emulator import Library
from kernelwright.emulator.source import mask, prepare
from kernelwright.errors import CompileError, ToolchainError

COMPILERS = ["g++", *(n for n in ("clang++-16", "clang++") if shutil.which(n))][:2]


@pytest.fixture(params=COMPILERS)
def compiler(request, monkeypatch):
    monkeypatch.setenv("CXX", request.param)
    return request.param


def errors_of(source: str, kernel: str = "k") -> CompileError:
    with pytest.raises(CompileError) as caught:
        Library.build(source, filename="kernel.cu", kernels=[kernel])
    error = caught.value
    for name in ("kwemu", "sizetype"):
        assert name not in str(error), "the compiler's own names are no help"
    assert error.diagnostics
    return error


SLIPS = {
    "missing semicolon": (
        """__global__ void k(float* p) {
    float x = p[0]
    p[1] = x;
}""",
        2,
        "expected ';' at the end",
    ),
    "misspelt index": (
        "__global__ void k(float* p) {\n    p[threadidx.x] = 1;\n}",
        2,
        "did you mean 'threadIdx'",
    ),
    "misspelt barrier": (
        "__global__ void k(float* p) {\n    __syncthread();\n}",
        2,
        "did you mean '__syncthreads'",
    ),
    "undeclared name": (
        "__global__ void k(float* p) {\n\n    p[j] = 1;\n}",
        3,
        "'j'",
    ),
    "write to const": (
        "__global__ void k(const float* p) {\n    p[0] = 1.0f;\n}",
        2,
        "can be read, not written",
    ),
    "index without its x": (
        "__global__ void k(float* p) {\n    int i = threadIdx;\n    p[i] = 1;\n}",
        2,
        "take one, with .x, .y or .z",
    ),
    "index without its x in a sum": (
        "__global__ void k(float* p) {\n    p[blockIdx.x * blockDim + 1] = 1;\n}",
        2,
        "take one, with .x, .y or .z",
    ),
    "vectors added": (
        "__global__ void k(float4* p) {\n    p[0] = p[1] + p[2];\n}",
        2,
        "compute with each of its parts",
    ),
    "element called": (
        "__global__ void k(float* p) {\n    p[0] = p[threadIdx.x + 1](2);\n}",
        2,
        "",
    ),
    "half without its header": (
        "__global__ void k(half* p) {\n    p[0] = p[1];\n}",
        1,
        "add #include <cuda_fp16.h>",
    ),
    "header that is not here": (
        "#include <thrust/sort.h>\n__global__ void k(float* p) {}",
        1,
        "the emulator has cuda_fp16.h",
    ),
    "host code": (
        "__global__ void k(float* p) {}\nvoid f(float* d) { cudaMalloc(&d, 4); }",
        2,
        "keep only device code",
    ),
    "launch from C++": (
        "__global__ void k(float* p) {}\nvoid f(float* p) { k<<<1, 32>>>(p); }",
        2,
        "launched from Python",
    ),
    "open brace": (
        "__global__ void k(float* p) {\n    if (p) {\n    p[0] = 1;\n}",
        1,
        "not closed",
    ),
    "initial value": (
        "__global__ void k(float* p) {\n    __shared__ float s[2] = {0, 1};\n}",
        2,
        "no initial value",
    ),
    "half plus float": (
        "#include <cuda_fp16.h>\n__global__ void k(half* p) {\n"
        "    p[0] = p[1] + 1.0f;\n}",
        3,
        "__half2float",
    ),
    "static_assert of a wrapper": (
        "#include <kw/cp_async.cuh>\n__global__ void k(float* p) {\n"
        "    __shared__ float t[4];\n    kw::cp_async<3>(t, p);\n}",
        4,
        "moves 4, 8 or 16 bytes",
    ),
    "argument types": (
        "__global__ void k(float* p) {\n    atomicAdd(p, p);\n}",
        2,
        "arguments of these types",
    ),
    "returns a value": ("__global__ int k() { return 1; }", 1, "must return void"),
    "reference": ("__global__ void k(float& p) { p = 1; }", 1, "pass a pointer"),
    "template": (
        "template <class T> __global__ void k(T* p) {}",
        1,
        "name an instance, such as k<float>",
    ),
    "twice": (
        "__global__ void k(int) {}\n__global__ void k(float) {}",
        1,
        "defined more than once",
    ),
    "another kernel": ("__global__ void other(int) {}", 0, "it has: other"),
}


@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_is_named_on_its_line(compiler, slip):
    source, line, words = SLIPS[slip]
    error = errors_of(source)
    first = next(d for d in error.diagnostics if d.severity == "error")
    assert first.line == line
    assert words in str(error)


@pytest.mark.parametrize(
    ("ptx", "words"),
    [
        ("cp.async.commit_group;", "kw::cp_async"),
        ("ldmatrix.sync.aligned.m8n8.x4.shared.b16 ...", "kw::ldmatrix"),
        ("mma.sync.aligned.m16n8k16.row.col ...", "kw::mma_sync"),
        ("wgmma.fence.sync.aligned;", "GPU only"),
        ("bar.sync 1;", "CUDA C++"),
    ],
)
def test_inline_asm_is_refused_with_its_wrapper(compiler, ptx, words):
    error = errors_of(
        f'__global__ void k() {{\n    int unknown;\n    asm volatile("{ptx}" ::);\n}}'
    )
    assert [d.line for d in error.diagnostics] == [3]
    assert "inline asm is PTX" in str(error)
    assert words in str(error)


def test_inline_asm_for_the_gpu_alone_is_left_alone(compiler):
    source = """#ifdef __CUDACC__
__device__ void f() { asm("bar.sync 0;"); }
#endif
// asm("in a comment")
__global__ void k() { printf("asm(\\"in a string\\")"); }"""
    assert Library.build(source, filename="k.cu", kernels=["k"]).signatures


def test_warnings_are_kept_with_their_lines(compiler):
    source = """__global__ void k(float* p) {
    float s;
    for (int i = 0; i < 3; ++i)
        s += p[i];
    p[0] = s; // built by """
    source += compiler + f"\n}} // {id(object())}"
    library = Library.build(source, filename="kernel.cu", kernels=["k"])
    assert any(
        d.line == 4 and d.severity == "warning" and "uninitialized" in d.message
        for d in library.warnings
    )


HARDLY_MEANT = {
    "if (i < n); p[i] = 1;": "the ';' ends this statement",
    "if (i = n) p[i] = 2;": "'=' assigns; to compare, write '=='",
    "if (i & 1 == 0) p[i] = 4;": "bind weaker than a comparison",
    "i == 3;": "computes a value and drops it",
    "if (!i == n) p[i] = 2;": "binds stronger than a comparison",
    "if (i) if (n) p[i] = 1; else p[i] = 3;": "this else belongs to the nearest if",
}


@pytest.mark.parametrize("statement", HARDLY_MEANT)
def test_a_slip_that_compiles_is_remarked_in_plain_words(compiler, statement):
    source = f"""__global__ void k(float* p, int n) {{
    int i = threadIdx.x;
    {statement}
}} // {compiler}"""
    for _ in range(2):  # compiled, and then found compiled
        library = Library.build(source, filename="kernel.cu", kernels=["k"])
        (remark,) = library.warnings
        assert (remark.severity, remark.line) == ("warning", 3)
        assert HARDLY_MEANT[statement] in remark.message


def test_what_is_only_style_is_not_remarked(compiler):
    source = """__global__ void k(float* p, int n) {
    int i = threadIdx.x;
    if (i < n && i > 2 || i == 7) p[i] = 1;
    p[1 << i + 1] = 2;
    while ((i = i / 2)) p[i] = 1;
    for (; i < n; p[i++] = 0) {}
    int unused = 3;
}"""
    assert Library.build(source, filename="k.cu", kernels=["k"]).warnings == ()


def test_no_compiler_is_one_clear_line(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ToolchainError, match="apt-get install g\\+\\+"):
        Library.build("", filename="k.cu", kernels=[])


def test_a_cache_that_cannot_be_written_says_so(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path / "file"))
    with pytest.raises(ToolchainError, match="KERNELWRIGHT_CACHE"):
        Library.build("__global__ void k() {}", filename="k.cu", kernels=["k"])


def test_more_static_shared_memory_than_a_gpu_has(compiler):
    source = """template <int N> __global__ void k(float* p) {
    __shared__ float tile[N][N], other[4];
    tile[threadIdx.x][0] = other[0] = p[0];
    __syncthreads();
    p[0] = tile[1][0] + other[1];
}"""
    Library.build(source, filename="kernel.cu", kernels=["k<110>"])
    with pytest.raises(CompileError, match="k<128> declares 65552 bytes"):
        Library.build(source, filename="kernel.cu", kernels=["k<110>", "k<128>"])


def test_mask_blanks_comments_and_strings_and_keeps_places():
    source = 'a "b//c" // d "e"\n/* f\n g */ h \'"\' R"(i\n"j)" k 1\'000'
    masked = mask(source)
    assert len(masked) == len(source)
    assert masked.count("\n") == source.count("\n")
    assert [word for word in "abcdefghijk" if word in masked.replace("R", "")] == [
        "a",
        "h",
        "k",
    ]


@pytest.mark.parametrize(
    "declaration",
    [
        "extern __shared__ float tile[];",
        "extern __shared__ __align__(16) unsigned char tile[];",
        "extern __shared__ alignas(alignof(double)) float tile[][8];",
        "__shared__ extern float4 tile[];",
        "extern\n    __shared__ float\n    tile[];",
    ],
)
@pytest.mark.parametrize("inside", [True, False])
def test_dynamic_shared_memory_keeps_every_line(declaration, inside):
    body = "    ((char*)tile)[0] = 1;\n    p[__LINE__] = 1;"
    source = (
        f"__global__ void k(int* p) {{\n{declaration}\n{body}\n}}"
        if inside
        else f"namespace n {{\n{declaration}\n"
        f"__global__ void k(int* p) {{\n{body}\n}}\n}}"
    )
    prepared = prepare(source)
    assert prepared.text.count("\n") == source.count("\n")
    assert prepared.has_global_dynamic is not inside
    kernel = "k" if inside else "n::k"
    assert Library.build(source, filename="k.cu", kernels=[kernel]).signatures
