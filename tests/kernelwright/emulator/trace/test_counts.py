"""Requests, sectors and wavefronts against what the hardware's rules say."""

from __future__ import annotations

import pytest
import torch

import kernelwright as kw
from kernelwright.errors import ArgumentError, LaunchError
from kernelwright.trace.names import is_rolled

WALK = """__global__ void walk(const float* x, float* out, int stride, int offset) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = x[i * stride + offset];
}"""


@pytest.mark.parametrize(
    ("stride", "offset", "sectors"),
    [(1, 0, 4), (2, 0, 8), (4, 0, 16), (8, 0, 32), (32, 0, 32), (1, 1, 5), (0, 5, 1)],
)
def test_a_strided_walk_touches_the_sectors_that_theory_says(
    trace, stride, offset, sectors
):
    x, out = torch.randn(32 * 256), torch.zeros(256)
    report = trace(WALK, "walk", 2, 128, x, out, stride, offset)
    loads = [a for a in report.lines if a.op == "load"]
    assert [a.line for a in loads] == [3]
    assert loads[0].buffer == "x"
    assert loads[0].requests == 8
    assert loads[0].sectors_per_request == sectors
    assert loads[0].lanes == 32
    assert loads[0].source.strip().startswith("out[i] = x")
    assert report.global_store.sectors_per_request == 4
    torch.testing.assert_close(out, x[offset::stride or 1][:256] if stride else
                               x[5].expand(256))  # fmt: skip
    report.assert_clean()


def test_a_slice_keeps_the_offset_that_it_has_on_a_gpu(trace):
    x, out = torch.randn(257), torch.zeros(256)
    report = trace(WALK, "walk", 1, 256, x[1:], out, 1, 0)
    assert report.global_load.sectors_per_request == 5
    torch.testing.assert_close(out, x[1:])


@pytest.mark.parametrize(
    ("type_name", "width", "sectors", "wavefronts"),
    [
        ("char", 1, 1, 1),
        ("short", 2, 2, 1),
        ("float", 4, 4, 1),
        ("float2", 8, 8, 2),
        ("double", 8, 8, 2),
        ("float4", 16, 16, 4),
        ("int4", 16, 16, 4),
    ],
)
def test_each_width_is_one_request(trace, type_name, width, sectors, wavefronts):
    source = f"""__global__ void k(const {type_name}* x, {type_name}* out) {{
        __shared__ {type_name} tile[64];
        tile[threadIdx.x] = x[threadIdx.x];
        __syncthreads();
        out[threadIdx.x] = tile[63 - threadIdx.x];
    }}"""
    kinds = {"char": torch.int8, "short": torch.int16, "int4": torch.int32,
             "double": torch.float64}  # fmt: skip
    kind = kinds.get(type_name, torch.float32)
    count = 64 * width // torch.empty(0, dtype=kind).element_size()
    x = torch.arange(count).to(kind)
    out = torch.zeros_like(x)
    report = trace(source, "k", 1, 64, x, out)
    assert {a.width for a in report.lines} == {width}
    assert report.global_load.requests == report.global_store.requests == 2
    assert report.global_load.sectors_per_request == sectors
    assert report.shared_load.wavefronts_per_request == wavefronts
    assert report.shared_store.wavefronts_per_request == wavefronts
    report.assert_clean()


def test_an_aligned_struct_moves_whole(trace):
    source = """#include <cuda_fp16.h>
    template <class T> struct alignas(16) Pack { T v[16 / sizeof(T)]; };
    __global__ void k(const Pack<half>* x, Pack<half>* out) {
        Pack<half> p = x[threadIdx.x];
        for (int i = 0; i < 8; ++i) p.v[i] = p.v[i] + p.v[i];
        out[threadIdx.x] = p;
    }"""
    x, out = torch.randn(256).half(), torch.zeros(256).half()
    report = trace(source, "k", 1, 32, x, out)
    assert [a.width for a in report.lines] == [16, 16]
    assert report.global_load.requests == report.global_store.requests == 1
    torch.testing.assert_close(out, x + x)


@pytest.mark.parametrize(("stride", "wavefronts"), [(32, 32), (33, 1), (2, 2), (0, 1)])
def test_bank_conflicts_follow_from_the_stride(trace, stride, wavefronts):
    source = f"""__global__ void k(float* out) {{
        __shared__ float tile[33 * 32];
        for (int i = threadIdx.x; i < 33 * 32; i += 32) tile[i] = i;
        __syncthreads();
        out[threadIdx.x] = tile[threadIdx.x * {stride}];
    }}"""
    report = trace(source, "k", 1, 32, torch.zeros(32))
    loads = [a for a in report.lines if a.space == "shared" and a.op == "load"]
    assert loads[0].wavefronts_per_request == wavefronts
    assert loads[0].ideal_wavefronts_per_request == 1
    assert loads[0].merges


def test_blocks_are_sampled_from_both_ends_and_between(trace):
    x, out = torch.randn(100 * 32), torch.zeros(100 * 32)
    report = trace(WALK, "walk", 100, 32, x, out, 1, 0, blocks=4)
    assert (report.blocks_traced, report.blocks_total) == (4, 100)
    assert {r.block for r in report.accesses()} == {(b, 0, 0) for b in (0, 33, 66, 99)}
    written = out.nonzero().flatten() // 32
    assert set(written.tolist()) == {0, 33, 66, 99}


def test_intensity_is_flops_over_the_sectors_touched(trace):
    source = """__global__ void add(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = x[i] + y[i];
}"""
    n = 1 << 14
    x, y, z = torch.randn(3, n)
    report = trace(source, "add", n // 256, 256, x, y, z, n, flops=n)
    assert report.bytes_requested == 12 * n
    assert report.unique_sectors == 12 * n // 32
    assert report.arithmetic_intensity == pytest.approx(1 / 12)
    sampled = trace(source, "add", n // 256, 256, x, y, z, n, flops=n, blocks=4)
    assert sampled.arithmetic_intensity == pytest.approx(1 / 12)


def test_a_long_loop_without_barriers_keeps_its_lanes_together(trace):
    # Far more accesses than are kept open at once: lanes take turns.
    source = """__global__ void k(const float* x, float* out, int n) {
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += 64) sum += x[i];
    out[threadIdx.x] = sum;
}"""
    n = 64 * 3000
    x, out = torch.ones(n), torch.zeros(64)
    report = trace(source, "k", 1, 64, x, out, n)
    assert report.global_load.requests == 2 * 3000
    assert report.global_load.sectors_per_request == 4
    assert out.eq(3000).all()


def test_accesses_give_lanes_threads_buffers_and_offsets(trace):
    x, out = torch.randn(256), torch.zeros(64)
    report = trace(WALK, "walk", 1, 64, x, out, 2, 1)
    requests = report.accesses(line=3, space="global")
    assert [r.warp for r in requests] == [0, 0, 1, 1]
    load = next(r for r in requests if r.op == "load" and r.warp == 1)
    assert load.lanes[0] == (0, (32, 0, 0), "x", (32 * 2 + 1) * 4)
    assert len(load.lanes) == 32
    assert load.width == 4
    assert report.accesses(limit=1) == requests[:1]


def test_atomics_are_no_loads_and_constant_memory_has_no_sectors(trace):
    source = """__constant__ float weight[4] = {1, 2, 3, 4};
__global__ void k(const float* x, float* out) {
    atomicAdd(&out[threadIdx.x % 4], x[threadIdx.x] * weight[threadIdx.x % 4]);
}"""
    x, out = torch.ones(64), torch.zeros(4)
    report = trace(source, "k", 1, 64, x, out)
    kinds = {(a.space, a.op, a.buffer) for a in report.lines}
    assert kinds == {
        ("global", "atomic", "out"),
        ("global", "load", "x"),
        ("constant", "load", "weight"),
    }
    assert report.global_load.requests == 2
    assert out.tolist() == [16, 32, 48, 64]
    report.assert_clean()


def test_overlapping_tensors_stay_one_memory(trace):
    source = """__global__ void k(const float* x, float* y) {
    y[threadIdx.x] = x[threadIdx.x] + 1;
}"""
    data = torch.zeros(64)
    trace(source, "k", 1, 32, data[:32], data[:32])
    assert data[:32].eq(1).all()
    assert data[32:].eq(0).all()


def test_wrong_options_are_refused(trace):
    out = torch.zeros(64)
    kernel = kw.cuda.compile(WALK, backend="emulator")["walk"]
    with pytest.raises(LaunchError, match="blocks is 0"):
        kernel.trace.options(blocks=0)
    with pytest.raises(ArgumentError, match="no parameter; there are: x, out"):
        kernel.trace.options(unwritten=["output"])[1, 32](out, out, 1, 0)
    with pytest.raises(LaunchError, match="no grid and no block"):
        kernel.trace(out, out, 1, 0)


def test_parts_of_a_warp_that_meet_apart_still_make_one_request(trace):
    source = """#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void k(const float* x, float* out) {
    auto tile = cg::tiled_partition<16>(cg::this_thread_block());
    __shared__ float part[64];
    part[threadIdx.x] = x[threadIdx.x];
    tile.sync();
    out[threadIdx.x] = part[threadIdx.x ^ 1];
}"""
    x, out = torch.randn(64), torch.zeros(64)
    report = trace(source, "k", 1, 64, x, out)
    assert report.shared_load.requests == report.global_store.requests == 2
    report.assert_clean()


def test_a_struct_of_twelve_bytes_is_three_requests(trace):
    source = """struct Point { float x, y, z; };
__global__ void k(const Point* points, Point* out) {
    out[threadIdx.x] = points[threadIdx.x];
}"""
    x, out = torch.randn(96), torch.zeros(96)
    report = trace(source, "k", 1, 32, x, out)
    assert {a.width for a in report.lines} == {4}
    assert report.global_load.requests == report.global_store.requests == 3
    assert report.global_load.sectors_per_request == 12
    torch.testing.assert_close(out, x)


UNEVEN = """__global__ void k(const float* x, const float* scale, float* out, int n) {
    float sum = 0;
    for (int round = 0; round < 3; ++round) {
PRAGMA        for (int k = 0; k <= threadIdx.x % END; ++k)
            sum += x[(threadIdx.x + 40 * k + round) % n] STEP;
        sum *= scale[round];
    }
    out[threadIdx.x] = sum;
}"""


def test_lanes_meet_again_behind_a_loop_that_they_leave_apart(trace):
    # In each of the three rounds the longest lane makes five requests, and then all 32
    # lanes read the scale together.
    x, scale, out = torch.randn(512), torch.randn(3), torch.zeros(64)
    source = UNEVEN.replace("PRAGMA", "#pragma unroll 1\n").replace("END", "5")
    report = trace(source.replace("STEP", ""), "k", 1, 64, x, scale, out, 512)
    found = {a.buffer: a for a in report.lines}
    assert found["x"].requests == 2 * 3 * 5
    assert found["x"].lanes == pytest.approx(64 * 3 * 3 / 30, rel=0.05)
    assert found["scale"].requests == 2 * 3
    assert found["scale"].lanes == 32
    ks = torch.arange(5)[:, None]
    lanes = torch.arange(64)
    expected = torch.zeros(64)
    for round_ in range(3):
        terms = x[(lanes + 40 * ks + round_) % 512]
        expected = (expected + (terms * (ks <= lanes % 5)).sum(0)) * scale[round_]
    torch.testing.assert_close(out, expected)


def test_a_loop_that_nvcc_may_run_in_larger_steps_is_marked(trace):
    x, scale, out = torch.randn(512), torch.randn(3), torch.zeros(64)
    plain = UNEVEN.replace("PRAGMA", "").replace("STEP", "")

    def marked(source):
        report = trace(source, "k", 1, 64, x, scale, out, 512)
        return {a.buffer for a in report.lines if a.uneven}, str(report)

    uneven, text = marked(plain.replace("END", "5"))
    assert uneven == {"x"}
    assert "nvcc may run this loop in larger steps" in text
    assert marked(plain.replace("END", "1"))[0] == set()
    rolled = UNEVEN.replace("PRAGMA", "#pragma unroll 1\n").replace("STEP", "")
    assert marked(rolled.replace("END", "5"))[0] == set()


def test_the_pragma_of_the_innermost_loop_counts():
    source = """#pragma unroll 1
for (;;) {
    a;
    for (int i = 0; i < 3; ++i) b;
    // #pragma unroll 1
    while (x) { c; }
    if (d) { e; } else { f; }
#pragma unroll(1)
    do { g; } while (h);
#pragma unroll
    for (;;) k;
}
l;""".splitlines()
    assert [n for n in range(1, 14) if is_rolled(source, n)] == [
        2,
        3,
        5,
        7,
        8,
        9,
        10,
        12,
    ]


def test_reading_again_what_was_just_read_is_counted_until_something_is_stored(trace):
    source = """__global__ void k(const float* x, volatile float* out, int n) {
    volatile const float* again = x;
    float sum = 0;
#pragma unroll 1
    for (int i = 0; i < n; ++i) {
        sum += again[threadIdx.x];
        STORE
    }
    out[threadIdx.x] = sum;
}"""
    x, out = torch.randn(64), torch.zeros(64)

    def repeats(store):
        report = trace(source.replace("STORE", store), "k", 1, 64, x, out, 10)
        (load,) = [a for a in report.lines if a.op == "load"]
        assert load.requests == 20
        return load.repeats

    assert repeats("") == 18
    assert repeats("out[threadIdx.x] = sum;") == 0
    assert repeats("__syncthreads();") == 0
