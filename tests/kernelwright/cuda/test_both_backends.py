"""One source, two back ends, one result: the GPU and the emulator against float64.

The kernels of ``tests/kernels`` are compiled by NVRTC and by the host's compiler in
one process, and given the very same values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import kernelwright as kw
from kernelwright.errors import ArgumentError, CompileError, LaunchError

pytestmark = pytest.mark.gpu

KERNELS = Path(__file__).parents[2] / "kernels"
BACKENDS = {"gpu": "cuda", "emulator": "cpu"}


@dataclass(frozen=True)
class Trial:
    """One launch of a kernel and what it must give.

    Args:
        file: its source in ``tests/kernels``.
        kernel: its name.
        launch: grid, block, dynamic shared bytes.
        arguments: tensors and numbers, in order; ``None`` is the output's place.
        out: the output before the launch.
        exact: the right output in float64, or whole numbers.
        tolerance: how far fp32 sums may stray from it.
    """

    file: str
    kernel: str
    launch: tuple[Any, ...]
    arguments: tuple[Any, ...]
    out: torch.Tensor
    exact: torch.Tensor
    tolerance: float


def randn(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=draw).to(dtype)


def unwritten(*shape: int) -> torch.Tensor:
    """Return NaNs: an element that nobody writes shows."""
    return torch.full(shape, torch.nan)


def matmul(m: int, n: int, k: int) -> Trial:
    a, b = randn(m, k, seed=1), randn(k, n, seed=2)
    grid = (kw.cdiv(n, 16), kw.cdiv(m, 16))
    return Trial(
        "matmul_tiled.cu",
        "matmul_tiled",
        (grid, (16, 16)),
        (a, b, None, m, n, k),
        unwritten(m, n),
        a.double() @ b.double(),
        1e-4,
    )


def layernorm(columns: int, block: int) -> Trial:
    x = randn(6, columns, seed=3) * 3 + 1
    gamma, beta = randn(columns, seed=4), randn(columns, seed=5)
    centred = x.double() - x.double().mean(1, keepdim=True)
    deviation = ((centred**2).mean(1, keepdim=True) + 1e-5).sqrt()
    return Trial(
        "layernorm_shuffle.cu",
        "layernorm",
        (6, block),
        (x, gamma, beta, None, columns, 1e-5),
        unwritten(6, columns),
        centred / deviation * gamma.double() + beta.double(),
        1e-4,
    )


def gemm(file: str, kernel: str, m: int, n: int, k: int, tile_n: int) -> Trial:
    a = randn(m, k, seed=6, dtype=torch.float16)
    b = randn(k, n, seed=7, dtype=torch.float16)
    return Trial(
        file,
        kernel,
        ((n // tile_n, kw.cdiv(m, 64)), 128),
        (a, b, None, m, n, k),
        unwritten(m, n),
        a.double() @ b.double(),
        1e-4,
    )


def attention(length: int, causal: int) -> Trial:
    q, k, v = (randn(2, length, 64, seed=seed) for seed in (8, 9, 10))
    scores = q.double() @ k.double().transpose(1, 2) / 8
    if causal:
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    return Trial(
        "flash_attention.cu",
        "flash_attention",
        ((kw.cdiv(length, 32), 2), 128, 2 * 32 * 64 * 4),
        (q, k, v, None, length, causal),
        unwritten(2, length, 64),
        scores.softmax(-1) @ v.double(),
        1e-4,
    )


def histogram(n: int) -> Trial:
    draw = torch.Generator().manual_seed(11)
    data = torch.randint(0, 256, (n,), generator=draw, dtype=torch.uint8)
    return Trial(
        "histogram.cu",
        "histogram",
        (24, 256),
        (data, None, n),
        torch.zeros(256, dtype=torch.uint32),
        torch.bincount(data.long(), minlength=256),
        0.0,
    )


TRIALS: dict[str, Callable[[], Trial]] = {
    "matmul 64": lambda: matmul(64, 64, 64),
    "matmul odd": lambda: matmul(33, 50, 17),
    "matmul one": lambda: matmul(1, 1, 1),
    "layernorm": lambda: layernorm(768, 256),
    "layernorm odd": lambda: layernorm(33, 64),
    "layernorm one": lambda: layernorm(1, 32),
    "wmma": lambda: gemm("gemm_wmma.cu", "gemm_wmma", 80, 48, 64, 16),
    "mma.sync": lambda: gemm("gemm_mma.cu", "gemm_mma", 128, 64, 160, 64),
    "attention": lambda: attention(96, 0),
    "attention causal": lambda: attention(70, 1),
    "attention one": lambda: attention(1, 1),
    "histogram": lambda: histogram(100_003),
}


def run(trial: Trial, backend: Any) -> torch.Tensor:
    """Launch on one back end; return the output on the CPU."""
    place = BACKENDS[backend]
    source = (KERNELS / trial.file).read_text()
    kernel = kw.cuda.compile(source, name=trial.file, backend=backend)[trial.kernel]
    out = trial.out.clone().to(place)
    given = [
        out if a is None else a.to(place) if isinstance(a, torch.Tensor) else a
        for a in trial.arguments
    ]
    kernel[trial.launch](*given)
    return out.cpu()


@pytest.mark.parametrize("name", TRIALS)
def test_both_back_ends_are_right(name):
    trial = TRIALS[name]()
    outputs = {backend: run(trial, backend) for backend in BACKENDS}
    for backend, got in outputs.items():
        error = (got.double() - trial.exact.double()).abs()
        # NaN is larger than every tolerance: nothing may be left unwritten.
        worst = float(error.nan_to_num(nan=torch.inf).max())
        bound = trial.tolerance * max(1.0, float(trial.exact.double().abs().max()))
        assert worst <= bound, f"{backend}: off by {worst:.3g}, {bound:.3g} allowed"


@pytest.mark.parametrize("name", ["histogram", "matmul odd"])
def test_the_gpu_gives_the_same_again(name):
    trial = TRIALS[name]()
    assert torch.equal(run(trial, "gpu"), run(trial, "gpu"))


TWICE = """
template <typename T, int N>
__global__ void repeat(const T* x, T* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) for (int k = 0; k < N; k++) out[i * N + k] = x[i];
}
"""


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32])
def test_template_instances(dtype):
    names = {torch.float32: "float", torch.float64: "double", torch.int32: "int"}
    x = torch.arange(100).to(dtype)
    for backend, place in BACKENDS.items():
        kernel = kw.cuda.compile(TWICE, backend=backend)[f"repeat<{names[dtype]}, 3>"]
        out = torch.zeros(300, dtype=dtype, device=place)
        kernel[1, 128](x.to(place), out, 100)
        assert torch.equal(out.cpu(), x.repeat_interleave(3))


SHARED = """
__global__ void through_shared(const float* x, float* out, int n) {
    __shared__ float fixed[10 * 1024];  // 40 KB
    extern __shared__ float more[];
    for (int i = threadIdx.x; i < n; i += blockDim.x) more[i] = x[i];
    for (int i = threadIdx.x; i < 10 * 1024; i += blockDim.x) fixed[i] = i;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        out[i] = more[n - 1 - i] + fixed[i];
}
"""


@pytest.mark.parametrize("n", [1000, 4000])
def test_static_and_dynamic_shared_memory_past_48_kb_together(n):
    # 40 KB and 16 KB: each is below what CUDA gives unasked, their sum is not.
    if torch.cuda.get_device_capability() < (8, 0):
        pytest.skip("a block has 64 KB there")
    x = torch.randn(n)
    for backend, place in BACKENDS.items():
        kernel = kw.cuda.compile(SHARED, backend=backend)["through_shared"]
        out = torch.zeros(n, device=place)
        kernel[1, 256, 4 * n](x.to(place), out, n)
        assert torch.equal(out.cpu(), x.flip(0) + torch.arange(n))


def test_too_much_shared_memory_is_refused_before_it_hurts():
    kernel = kw.cuda.compile(SHARED, backend="gpu")["through_shared"]
    x = torch.zeros(8, device="cuda")
    with pytest.raises(LaunchError, match="shared memory"):
        kernel[1, 32, 400 * 1024](x, x, 8)
    torch.cuda.synchronize()
    assert float((x + 1).sum()) == 8  # the context lives


EDGES = """
__global__ void values(const float* x, float* out, int n) {
    int i = threadIdx.x;
    if (i < n) {
        out[4 * i] = fminf(x[i], 1.0f);
        out[4 * i + 1] = x[i] * 2.0f + 1.0f;
        out[4 * i + 2] = rintf(x[i]);
        out[4 * i + 3] = __int_as_float(__float_as_int(x[i]) ^ 0x80000000);
    }
}
"""


def test_special_values_agree_bit_for_bit():
    x = torch.tensor(
        [0.0, -0.0, 0.5, 1.5, 2.5, -3.7, 1e-40, 3e38, torch.inf, -torch.inf]
    )
    bits = {}
    for backend, place in BACKENDS.items():
        out = torch.zeros(40, device=place)
        kernel = kw.cuda.compile(EDGES, backend=backend)["values"]
        kernel[1, 32](x.to(place), out, 10)
        bits[backend] = out.cpu().view(torch.int32)
    assert torch.equal(bits["gpu"], bits["emulator"])


def test_a_launch_is_on_torchs_current_stream():
    source = "__global__ void set(float* x, float v) { x[threadIdx.x] = v; }"
    kernel = kw.cuda.compile(source, backend="gpu")["set"]
    x = torch.zeros(32, device="cuda")
    # The first launch loads the module, which takes longer than the sleep below.
    kernel[1, 32](x, 0.0)
    torch.cuda.synchronize()
    aside = torch.cuda.Stream()
    with torch.cuda.stream(aside):
        torch.cuda._sleep(50_000_000)
        kernel[1, 32](x, 7.0)
    # The other stream is not held up, and sees what stood there before.
    before = x.clone()
    torch.cuda.current_stream().synchronize()
    assert not aside.query()
    assert float(before.sum()) == 0
    aside.synchronize()
    assert float(x.sum()) == 7 * 32


@pytest.mark.parametrize("backend", BACKENDS)
def test_memory_of_the_wrong_kind_is_refused(backend):
    source = "__global__ void set(float* x) { x[0] = 1; }"
    kernel = kw.cuda.compile(source, backend=backend)["set"]
    wrong = torch.zeros(4, device="cpu" if backend == "gpu" else "cuda")
    with pytest.raises(ArgumentError, match="pass tensor"):
        kernel[1, 1](wrong)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_error_names_the_same_line(backend):
    source = "\n\n__global__ void k(float* x) {\n    x[0] = undefined_name;\n}\n"
    with pytest.raises(CompileError) as caught:
        kw.cuda.compile(source, name="cell.cu", backend=backend)
    errors = [d for d in caught.value.diagnostics if d.severity == "error"]
    assert errors[0].line == 4
    assert "undefined_name" in errors[0].message


def test_the_environment_chooses_the_back_end(monkeypatch):
    assert kw.cuda.backend() == "gpu"
    monkeypatch.setenv("KERNELWRIGHT_BACKEND", "emulator")
    assert kw.cuda.backend() == "emulator"
    source = "__global__ void set(float* x) { x[0] = 5; }"
    x = torch.zeros(1)
    kw.cuda.compile(source)["set"][1, 1](x)
    assert float(x) == 5
