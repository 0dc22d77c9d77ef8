"""What ends a kernel ends in a Python exception with its line; the process goes on."""

from __future__ import annotations

import numpy as np
import pytest

from kernelwright.errors import KernelDeadlock, KernelFault, KernelTimeout


def numbers(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.int32)


def still_works(build) -> None:
    """A launch after a fault is as good as one before it."""
    out = np.zeros(64, np.int32)
    build("__global__ void k(int* p) { p[threadIdx.x] = threadIdx.x; }")(
        "k", 1, 64, out
    )
    assert (out == numbers(64)).all()


def test_an_unmapped_write_names_its_line_and_thread(build):
    kernel = build(
        """__global__ void k(int* p) {
    int i = threadIdx.x;
    if (i == 37)
        p[i - (1ll << 38)] = 1;
}"""
    )
    # Downwards: upwards the sum may be no address at all, which the processor
    # reports without naming it.
    with pytest.raises(KernelFault, match="line 4.*wrote to address") as caught:
        kernel("k", (3, 2), 64, numbers(64))
    assert caught.value.kind == "memory"
    assert caught.value.line == 4
    assert caught.value.thread == (37, 0, 0)
    still_works(build)


def test_a_null_pointer_is_named(build):
    kernel = build(
        """__global__ void k(int* p, int* q) {
    q[0] =
        p[threadIdx.x] + 1;
}"""
    )
    import ctypes

    with pytest.raises(KernelFault, match="read through a null pointer") as caught:
        kernel("k", 1, 32, ctypes.c_void_p(0), numbers(1))
    assert caught.value.line == 3


def test_a_fault_in_an_inlined_function_names_the_innermost_user_line(build):
    kernel = build(
        """__device__ __forceinline__ void store(int* p, int v) {
    atomicAdd(p, v);
}
__global__ void k(int* p) {
    store(p + (1ll << 40), 1);
}"""
    )
    with pytest.raises(KernelFault) as caught:
        kernel("k", 1, 1, numbers(1))
    assert caught.value.line == 2


def test_a_fault_in_a_library_function_names_the_callers_line(build):
    kernel = build(
        """#include <cstring>
__global__ void k(char* p, int n) {
    int x = n;
    memcpy(p + (1ll << 40), p, n);
    p[0] = x;
}"""
    )
    with pytest.raises(KernelFault) as caught:
        kernel("k", 1, 1, numbers(4096), 4000)
    assert caught.value.line == 4


def test_integer_division_by_zero(build):
    kernel = build(
        """__global__ void k(int* p, int zero) {
    p[0] = 7;
    p[1] = 7 / zero;
}"""
    )
    with pytest.raises(KernelFault, match="divided an integer by zero") as caught:
        kernel("k", 1, 1, numbers(2), 0)
    assert caught.value.kind == "division by zero"
    assert caught.value.line == 3
    still_works(build)


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("return n <= 0 ? 0 :\n        down(n + 1) + down(n - 1);", 2),
        ("volatile int big[100000];\n    big[n] = n; return big[0];", 3),
    ],
)
def test_stack_overflow(build, body, line):
    kernel = build(
        "__device__ __noinline__ int down(int n) { "
        + body
        + """
}
__global__ void k(int* p, int n) {
    p[0] = down(n);
}"""
    )
    with pytest.raises(KernelFault, match="stack") as caught:
        kernel("k", 1, 64, numbers(1), 1)
    assert caught.value.kind == "stack overflow"
    assert caught.value.line in (1, line)
    still_works(build)


def test_a_failed_assert_shows_its_expression(build):
    kernel = build(
        """#include <cassert>
__global__ void k(int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    assert(i < n && "in range");
}"""
    )
    with pytest.raises(KernelFault, match="line 4: assertion `i < n") as caught:
        kernel("k", 4, 32, 100)
    assert caught.value.kind == "assert"
    assert caught.value.block == (3, 0, 0)
    assert caught.value.thread == (4, 0, 0)


def test_a_function_that_returns_nothing_where_it_must(build):
    kernel = build(
        """__device__ __noinline__ int sign(int x) {
    if (x > 0) return 1;
    if (x < 0) return -1;
}
__global__ void k(int* p) {
    p[threadIdx.x] = sign(p[threadIdx.x]);
}"""
    )
    values = numbers(3) + 1
    kernel("k", 1, 3, values)
    assert values.tolist() == [1, 1, 1]
    with pytest.raises(KernelFault, match="must return a value") as caught:
        kernel("k", 1, 3, numbers(3))
    assert caught.value.kind == "illegal instruction"
    assert caught.value.line in (1, 3, 4, 6)


def test_trap(build):
    kernel = build("__global__ void k() {\n    if (threadIdx.x == 3) __trap();\n}")
    with pytest.raises(KernelFault, match="__trap") as caught:
        kernel("k", 1, 32)
    assert (caught.value.kind, caught.value.line) == ("trap", 2)


def test_barriers_in_both_branches_are_told_apart(build):
    kernel = build(
        """__global__ void k(int* p) {
    if (threadIdx.x / 32 == 0) {
        p[threadIdx.x] = 1;
        __syncthreads();
    } else {
        __syncthreads();
    }
}"""
    )
    with pytest.raises(KernelFault, match="line 6.*line 4") as caught:
        kernel("k", 1, 64, numbers(64))
    assert caught.value.kind == "barrier"
    assert caught.value.line == 6


def test_a_warp_that_waits_for_a_thread_at_a_barrier_is_a_deadlock(build):
    kernel = build(
        """__global__ void k(int* p) {
    int v = threadIdx.x;
    if (threadIdx.x == 0)
        __syncthreads();
    else
        v = __shfl_sync(0xffffffff, v, 0);
    p[threadIdx.x] = v;
}"""
    )
    with pytest.raises(KernelDeadlock) as caught:
        kernel("k", (2, 2), 32, numbers(32))
    text = str(caught.value)
    assert "thread (0, 0, 0) waits in __syncthreads on line 4" in text
    assert "31 threads, the first (1, 0, 0), wait in a warp shuffle" in text
    assert "0xffffffff on line 6" in text


def test_a_lane_outside_of_its_own_mask(build):
    kernel = build(
        """__global__ void k(int* p) {
    p[threadIdx.x] = __shfl_down_sync(0x0000ffff, p[threadIdx.x], 1);
}"""
    )
    with pytest.raises(KernelFault, match="its own mask 0x0000ffff") as caught:
        kernel("k", 1, 32, numbers(32))
    assert (caught.value.kind, caught.value.line) == ("sync mask", 2)
    assert caught.value.thread == (16, 0, 0)


def test_two_warp_operations_under_one_mask(build):
    kernel = build(
        """__global__ void k(int* p) {
    if (threadIdx.x < 16)
        p[threadIdx.x] = __shfl_sync(0xffffffff, threadIdx.x, 0);
    else
        p[threadIdx.x] = __ballot_sync(0xffffffff, 1);
}"""
    )
    with pytest.raises(KernelFault, match="on line 3") as caught:
        kernel("k", 1, 32, numbers(32))
    assert (caught.value.kind, caught.value.line) == ("sync mask", 5)


@pytest.mark.parametrize(
    "body",
    [
        "while (true) {}",
        "while (*(volatile int*)p == 0) {}",
        "while (true) __syncthreads();",
        "while (true) p[0] = __shfl_xor_sync(~0u, p[0], 1);",
        "float x = 1.0f; while (x < 2.0f) x = cosf(x);",
        'while (true) printf("%d", 1);',
        "while (atomicCAS(p, 1, 2) != 1) {}",
    ],
)
def test_an_endless_loop_ends_at_the_deadline(build, body):
    kernel = build(f"__global__ void k(int* p) {{\n    int q = p[1];\n    {body}\n}}")
    with pytest.raises(KernelTimeout, match=r"stopped after 0\.3 s") as caught:
        kernel("k", 4, 64, np.zeros(2, np.int32), deadline_s=0.3)
    # The compiler gives no line to some instructions of a loop; they count to the next.
    assert caught.value.line in (3, 4)
    still_works(build)


def test_a_block_that_waits_for_one_to_come_is_told_of_it(build):
    source = """__global__ void k(int* came) {
    atomicAdd(came, 1);
    while (atomicAdd(came, 0) < 100) {}
}"""
    with pytest.raises(KernelTimeout, match=r"\d+ blocks had not begun") as caught:
        build(source)("k", 100, 32, np.zeros(1, np.int32), deadline_s=0.3)
    assert str(caught.value).endswith("no block may wait for another")


def test_the_deadline_of_the_environment(build, monkeypatch):
    monkeypatch.setenv("KERNELWRIGHT_DEADLINE_S", "0.05")
    kernel = build("__global__ void k() {\n    while (true) {}\n}")
    with pytest.raises(KernelTimeout, match=r"0\.05 s"):
        kernel("k", 1, 1, deadline_s=None)


def test_what_was_printed_before_a_fault_is_kept(build):
    kernel = build('__global__ void k() { printf("so far\\n"); assert(false); }')
    with pytest.raises(KernelFault) as caught:
        kernel("k", 1, 1)
    assert caught.value.printed == "so far\n"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("kw::cp_async<16>(tile, x + 1);", "not aligned to its size"),
        ("unsigned r[1]; kw::ldmatrix(r, tile + 1);", "not 16-byte aligned"),
        ("cooperative_groups::this_grid().sync();", "runs on a GPU only"),
    ],
)
def test_what_the_gpus_instruction_does_not_take(build, call, words):
    kernel = build(
        f"""#include <cooperative_groups.h>
#include <kw/cp_async.cuh>
#include <kw/ldmatrix.cuh>
__global__ void k(const float* x) {{
    __shared__ __align__(16) float tile[64];
    {call}
}}"""
    )
    with pytest.raises(KernelFault, match=words) as caught:
        kernel("k", 1, 32, np.zeros(8, np.float32))
    assert caught.value.line == 6
