"""Whole kernels against float64. The GPU's tests run the very same sources."""

from __future__ import annotations

import shutil

import numpy as np
import pytest


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.mark.parametrize("shape", [(64, 64, 64), (33, 50, 17), (1, 1, 1), (16, 100, 3)])
def test_tiled_matmul(build, kernel_file, random, shape):
    m, n, k = shape
    matmul = build(kernel_file("matmul_tiled.cu"), "matmul_tiled")
    a = random.standard_normal((m, k), np.float32)
    b = random.standard_normal((k, n), np.float32)
    c = np.full((m, n), np.nan, np.float32)
    grid = (-(-n // 16), -(-m // 16))
    matmul("matmul_tiled", grid, (16, 16), a, b, c, m, n, k)
    np.testing.assert_allclose(c, a.astype(float) @ b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("columns", "block"), [(768, 256), (100, 128), (1, 32), (33, 64)]
)
def test_layernorm_by_shuffles(build, kernel_file, random, columns, block):
    layernorm = build(kernel_file("layernorm_shuffle.cu"), "layernorm")
    x = random.standard_normal((6, columns), np.float32) * 3 + 1
    gamma, beta = random.standard_normal((2, columns), np.float32)
    gamma, beta = gamma.copy(), beta.copy()
    y = np.full_like(x, np.nan)
    layernorm("layernorm", 6, block, x, gamma, beta, y, columns, 1e-5)
    exact = x.astype(float)
    exact = exact - exact.mean(1, keepdims=True)
    exact /= np.sqrt((exact**2).mean(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(y, exact * gamma + beta, rtol=1e-4, atol=1e-4)


def test_wmma_gemm(build, kernel_file, random):
    gemm = build(kernel_file("gemm_wmma.cu"), "gemm_wmma")
    m, n, k = 80, 48, 64
    a = random.standard_normal((m, k)).astype(np.float16)
    b = random.standard_normal((k, n)).astype(np.float16)
    c = np.full((m, n), np.nan, np.float32)
    gemm("gemm_wmma", (n // 16, -(-m // 64)), 128, a, b, c, m, n, k)
    np.testing.assert_allclose(c, a.astype(float) @ b.astype(float), atol=1e-4)


def test_mma_gemm_with_async_copies(build, kernel_file, random):
    gemm = build(kernel_file("gemm_mma.cu"), "gemm_mma")
    m, n, k = 128, 64, 160
    a = random.standard_normal((m, k)).astype(np.float16)
    b = random.standard_normal((k, n)).astype(np.float16)
    c = np.full((m, n), np.nan, np.float32)
    gemm("gemm_mma", (n // 64, m // 64), 128, a, b, c, m, n, k)
    np.testing.assert_allclose(c, a.astype(float) @ b.astype(float), atol=1e-4)


@pytest.mark.parametrize(("length", "causal"), [(96, 0), (70, 1), (1, 1)])
def test_flash_attention(build, kernel_file, random, length, causal):
    attention = build(kernel_file("flash_attention.cu"), "flash_attention")
    q, k, v = (random.standard_normal((2, length, 64), np.float32) for _ in range(3))
    o = np.full_like(q, np.nan)
    attention(
        "flash_attention",
        (-(-length // 32), 2),
        128,
        *(q, k, v, o, length, causal),
        shared=2 * 32 * 64 * 4,
    )
    scores = q.astype(float) @ k.astype(float).transpose(0, 2, 1) / 8
    if causal:
        scores += np.triu(np.full((length, length), -np.inf), 1)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    exact = p / p.sum(-1, keepdims=True) @ v
    np.testing.assert_allclose(o, exact, rtol=1e-4, atol=1e-5)


def test_histogram_with_atomics(build, kernel_file, random):
    histogram = build(kernel_file("histogram.cu"), "histogram")
    data = random.integers(0, 256, 100_003).astype(np.uint8)
    bins = np.zeros(256, np.uint32)
    histogram("histogram", 24, 256, data, bins, data.size)
    assert (bins == np.bincount(data, minlength=256)).all()


@pytest.mark.parametrize(
    "compiler", [n for n in ("g++", "clang++", "clang++-16") if shutil.which(n)]
)
def test_both_compilers_in_one_process(
    build, kernel_file, random, monkeypatch, compiler
):
    monkeypatch.setenv("CXX", compiler)
    test_layernorm_by_shuffles(build, kernel_file, random, 100, 64)
    test_mma_gemm_with_async_copies(build, kernel_file, random)
    test_flash_attention(build, kernel_file, random, 40, 1)
