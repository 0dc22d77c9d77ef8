"""Wrappers of chapter 7 on both back ends: partial copies, shared addresses, tiles."""

from __future__ import annotations

import pytest
import torch

import kernelwright as kw

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def build(source: str, name: str, device: str) -> kw.cuda.Kernel:
    backend: kw.cuda.Backend = "gpu" if device == "cuda" else "emulator"
    return kw.cuda.compile(source, backend=backend)[name]


PARTIAL = """
#include <kw/cp_async.cuh>
#include <kw/shared.cuh>

__global__ void first(const unsigned char* x, unsigned char* out) {
    __shared__ __align__(16) unsigned char tile[17 * 16];
    kw::Shared own = kw::shared_address(tile);
    int i = threadIdx.x;
    kw::cp_async_first<16>(own + 16 * i, x + 16 * i, i);
    kw::cp_async_commit();
    kw::cp_async_wait<0>();
    __syncthreads();
    for (int j = 0; j < 16; ++j) out[16 * i + j] = tile[16 * i + j];
}
"""


@pytest.mark.parametrize("device", DEVICES)
def test_the_first_bytes_of_a_group_and_then_zeros(device: str) -> None:
    x = torch.arange(1, 17 * 16 + 1, dtype=torch.int16).to(torch.uint8).to(device)
    out = torch.full_like(x, 255)
    build(PARTIAL, "first", device)[1, 17](x, out)
    inside = (
        torch.arange(16, device=device)[None] < torch.arange(17, device=device)[:, None]
    )
    assert torch.equal(out.view(17, 16), torch.where(inside, x.view(17, 16), 0))


def test_more_bytes_than_a_group_has_are_refused() -> None:
    kernel = build(PARTIAL.replace("16 * i, i)", "16 * i, i + 1)"), "first", "cpu")
    x = torch.zeros(17 * 16, dtype=torch.uint8)
    with pytest.raises(kw.KernelFault, match="fewer than 0 or too many bytes"):
        kernel[1, 17](x, x.clone())


TILES = """
#include <kw/tiles.cuh>

template <bool ASYNCHRONOUS>
__global__ void through(const half* x, half* out, int pitch) {
    __shared__ __align__(128) half tile[64 * 128];
    if (ASYNCHRONOUS) {
        kw::copy_tile_async<64, 128>(tile, x, pitch, kw::swizzled);
        kw::cp_async_wait_all();
    } else {
        kw::copy_tile<64, 128>(tile, x, pitch, kw::swizzled);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 64 * 128; i += blockDim.x)
        out[i] = tile[kw::swizzled(i / 128, i % 128, 128)];
}
"""


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("asynchronous", ["true", "false"])
def test_a_tile_comes_through_the_swizzle(asynchronous: str, device: str) -> None:
    kernel = build(TILES, f"through<{asynchronous}>", device)
    x = torch.randn(64, 136, device=device).half()
    out = torch.full((64, 128), torch.nan, device=device).half()
    kernel[1, 128](x, out, 136)
    assert torch.equal(out, x[:, :128])


@pytest.mark.parametrize("arch", ["sm_75", "sm_80"])
def test_a_chip_without_asynchronous_copies_loads_and_stores(arch: str) -> None:
    sass = kw.cuda.compile(PARTIAL)["first"].sass(arch)
    assert ("LDGSTS" in sass) == (arch == "sm_80")
