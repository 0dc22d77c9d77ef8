"""The face of kernelwright.cuda, on whatever back end this machine has."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch

import kernelwright as kw
from kernelwright import cuda
from kernelwright.cuda.nvrtc import compile_cubin

SOURCE = r"""
__global__ void add(const float* x, const float* y, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] + y[i];
}

namespace math {
template <typename T, int kFactor>
__global__ void scale(const T* x, T* out, unsigned int n) {
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] * T(kFactor);
}
}  // namespace math

extern "C" __global__ void reverse(const float* x, float* out) {
    extern __shared__ float tile[];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}
"""
DEVICE = "cuda" if cuda.backend() == "gpu" else "cpu"


@pytest.fixture(scope="module")
def module() -> cuda.Module:
    return cuda.compile(SOURCE, name="three.cu")


def test_a_module_knows_its_kernels(module: cuda.Module) -> None:
    assert module.kernels == ("add", "reverse")
    assert module.templates == ("math::scale",)
    assert "add" in repr(module)


def test_a_kernel_computes(module: cuda.Module) -> None:
    n = 1000
    x, y = torch.randn(2, n, device=DEVICE)
    out = torch.full((n + 24,), -1.0, device=DEVICE)
    module["add"][kw.cdiv(n, 256), 256](x, y, out, n)
    assert torch.equal(out[:n], x + y)
    assert (out[n:] == -1).all()


@pytest.mark.parametrize(
    ("ctype", "dtype"),
    [("float", torch.float32), ("double", torch.float64), ("int", torch.int32)],
)
def test_a_template_instance_by_name(
    module: cuda.Module, ctype: str, dtype: torch.dtype
) -> None:
    x = torch.arange(100, device=DEVICE).to(dtype)
    out = torch.empty_like(x)
    kernel = module[f"math::scale<{ctype}, 3>"]
    kernel[(1,), (128, 1, 1)](x, out, 100)
    assert torch.equal(out, 3 * x)
    assert str(kernel.signature).endswith(
        f"({'const '}{ctype}*, {ctype}*, unsigned int)"
    )


def test_dynamic_shared_memory_and_an_extern_c_kernel(module: cuda.Module) -> None:
    x = torch.randn(512, device=DEVICE)
    out = torch.empty_like(x)
    module["reverse"][1, 512, 512 * 4](x, out)
    assert torch.equal(out, x.flip(0))


def test_an_unknown_kernel_lists_the_known(module: cuda.Module) -> None:
    with pytest.raises(KeyError, match=r"no kernel 'ad'.*add, reverse, math::scale"):
        module["ad"]
    with pytest.raises(KeyError, match="is a template"):
        module["math::scale"]


@pytest.mark.parametrize(
    ("launch", "words"),
    [
        ((4,), "takes a grid and a block"),
        ((0, 32), "the grid is 0 along x; a launch needs at least 1"),
        ((1, 2048), "at most 1024"),
        ((1, (32, 64)), "2048 threads; a GPU takes at most 1024"),
        ((3.5, 32), r"wanted whole numbers.*\(n \+ b - 1\) // b"),
        ((1, (1, 1, 65)), "block is 65 along z"),
        (((1, 70000), 32), "grid is 70000 along y"),
        ((1, 32, -1), "shared memory is -1"),
        (((1, 1, 1, 1), 32), "has 4 dimensions"),
    ],
)
def test_an_impossible_launch_says_why(
    module: cuda.Module, launch: tuple[object, ...], words: str
) -> None:
    with pytest.raises(kw.LaunchError, match=words):
        module["add"][launch if len(launch) > 1 else launch[0]]


def test_a_call_without_a_launch_says_how(module: cuda.Module) -> None:
    with pytest.raises(kw.LaunchError, match=r"add\[blocks, 256\]"):
        module["add"](1)


def test_arguments_go_by_position(module: cuda.Module) -> None:
    with pytest.raises(kw.ArgumentError, match=r"by position, got n=.*\n.*add\("):
        module["add"][1, 32](n=4)


def test_a_file_s_name_is_not_a_source() -> None:
    with pytest.raises(kw.CompileError, match="looks like a file's name"):
        cuda.compile("add.cu")


def test_more_shared_memory_than_a_block_has(module: cuda.Module) -> None:
    x = torch.randn(32, device=DEVICE)
    with pytest.raises(kw.LaunchError, match="shared memory"):
        module["reverse"][1, 32, 300_000](x, torch.empty_like(x))


def test_a_tensor_on_the_wrong_device(module: cuda.Module) -> None:
    other = torch.zeros(4, device="meta")
    with pytest.raises(kw.ArgumentError, match="meta"):
        module["add"][1, 32](other, other, other, 4)


def test_errors_point_at_the_author_s_line() -> None:
    source = (
        "\n// a comment\n__global__ void k(float* x) {\n    x[threadidx.x] = 1;\n}\n"
    )
    with pytest.raises(kw.CompileError) as caught:
        cuda.compile(source, name="cell.cu")
    first = caught.value.diagnostics[0]
    assert (first.severity, first.line) == ("error", 4)
    assert "threadidx" in first.message
    assert "    4 |     x[threadidx.x] = 1;" in str(caught.value)


def test_a_source_without_kernels_still_shows_its_errors() -> None:
    with pytest.raises(kw.CompileError):
        cuda.compile("__device__ int f() { return oops; }")
    assert cuda.compile("__device__ int f() { return 1; }").kernels == ()


def test_resources_and_sass_need_no_gpu(module: cuda.Module) -> None:
    kernel = module["add"]
    for arch in ("sm_75", "sm_90"):
        resources = kernel.resources(arch)
        assert resources.arch == arch
        assert 4 <= resources.registers <= 64
        assert resources.spill_bytes == 0
    sass = kernel.sass("sm_80")
    assert "LDG.E" in sass and "STG.E" in sass and "FADD" in sass
    assert "reverse" not in sass


def test_static_shared_memory_is_reported() -> None:
    source = """
    __global__ void k(float* x) {
        __shared__ float tile[100];
        tile[threadIdx.x] = x[0];
        __syncthreads();
        x[threadIdx.x] = tile[99 - threadIdx.x];
    }"""
    assert cuda.compile(source)["k"].resources("sm_90").shared_bytes == 400


def test_standard_names_need_no_include() -> None:
    source = """
    __global__ void k(float* x, uint32_t n) {
        x[threadIdx.x] = n ? INFINITY : FLT_MAX;
    }"""
    assert cuda.compile(source)["k"].resources("sm_80").registers > 0


def test_what_a_kernel_prints_is_shown_even_when_it_fails(
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = """
    __global__ void k(int divisor) {
        printf("divisor %d\\n", divisor);
        assert(divisor != 0);
    }"""
    kernel = cuda.compile(source, backend="emulator")["k"]
    kernel[1, 1](3)
    with pytest.raises(kw.KernelFault) as caught:
        kernel[1, 1](0)
    assert (caught.value.kind, caught.value.line) == ("assert", 4)
    assert capsys.readouterr().out == "divisor 3\ndivisor 0\n"


def test_backend_can_be_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELWRIGHT_BACKEND", "emulator")
    assert cuda.backend() == "emulator"
    monkeypatch.setenv("KERNELWRIGHT_BACKEND", "quantum")
    with pytest.raises(kw.ToolchainError, match="wanted: emulator, gpu"):
        cuda.backend()


@pytest.mark.gpu
def test_a_large_dynamic_shared_memory_is_asked_for(module: cuda.Module) -> None:
    x = torch.randn(1024, device="cuda")
    out = torch.empty_like(x)
    module["reverse"][1, 1024, 100_000](x, out)
    assert torch.equal(out, x.flip(0))


@pytest.mark.gpu
def test_a_launch_is_on_torch_s_current_stream(module: cuda.Module) -> None:
    n = 1 << 20
    x = torch.randn(n, device="cuda")
    out = torch.empty_like(x)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        x.fill_(2.0)
        module["add"][kw.cdiv(n, 256), 256](x, x, out, n)
    stream.synchronize()
    assert (out == 4.0).all()


@pytest.mark.gpu
def test_a_kernel_can_be_captured_in_a_graph(module: cuda.Module) -> None:
    n = 4096
    x = torch.randn(n, device="cuda")
    out = torch.zeros(n, device="cuda")
    kernel = module["add"][kw.cdiv(n, 256), 256]
    kernel(x, x, out, n)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel(x, x, out, n)
    out.zero_()
    graph.replay()
    assert torch.equal(out, x + x)


@pytest.mark.gpu
def test_a_launch_from_another_thread(module: cuda.Module) -> None:
    x = torch.randn(100, device="cuda")
    out = torch.empty_like(x)
    thread = threading.Thread(target=module["add"][1, 128], args=(x, x, out, 100))
    thread.start()
    thread.join()
    torch.cuda.synchronize()
    assert torch.equal(out, x + x)


@pytest.mark.gpu
def test_cupy_arrays_come_in_without_a_copy(module: cuda.Module) -> None:
    cupy = pytest.importorskip("cupy")
    x = cupy.arange(100, dtype=cupy.float32)
    out = cupy.zeros_like(x)
    module["add"][1, 128](x, x, out, 100)
    torch.cuda.synchronize()
    assert (out == 2 * x).all()


@pytest.mark.gpu
def test_the_emulator_can_be_asked_for_beside_a_gpu() -> None:
    module = cuda.compile(SOURCE, backend="emulator")
    x = torch.randn(100)
    out = torch.empty_like(x)
    module["add"][1, 128](x, x, out, 100)
    assert torch.equal(out, x + x)
    with pytest.raises(kw.ArgumentError, match=r"pass tensor.cpu\(\)"):
        module["add"][1, 128](x.cuda(), x, out, 100)
    with pytest.raises(kw.ArgumentError, match=r"pass tensor.cuda\(\)"):
        cuda.compile(SOURCE, backend="gpu")["add"][1, 128](x, x, out, 100)


@pytest.mark.gpu
def test_what_ptxas_says_is_not_lost_to_the_drivers_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    torch.zeros(1, device="cuda")  # NVRTC asks a driver that somebody has started
    source = f"// of {tmp_path}\n{SOURCE}"
    said = []
    for folder in ("first", "second"):
        monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path / folder))
        cubin = compile_cubin(
            source, filename="three.cu", kernels=("add",), arch="sm_90"
        )
        said.append(cubin.resources("add"))
    assert said[0] == said[1] and said[0].registers > 0


def test_a_folder_s_files_are_compiled_once(tmp_path: Path) -> None:
    (tmp_path / "three.cu").write_text(SOURCE)
    find = cuda.kernels(tmp_path)
    add = find("three", "add", DEVICE)
    (tmp_path / "three.cu").unlink()
    assert find("three", "add", DEVICE) is add
    x, out = torch.arange(8.0, device=DEVICE), torch.empty(8, device=DEVICE)
    find("three", "math::scale<float, 3>", DEVICE)[1, 32](x, out, 8)
    assert torch.equal(out, 3 * x)
    with pytest.raises(KeyError, match="three.cu has no kernel 'subtract'"):
        find("three", "subtract", DEVICE)
