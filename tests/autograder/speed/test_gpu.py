"""Real trials on a real GPU: honest answers get their band, cheaters get nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from autograder.exercises import all_exercises
from autograder.judge.speed import SpeedVerdict, judge_speed
from autograder.judge.trial import Cell
from autograder.languages import code_of, language_of
from autograder.regions import cell_source
from autograder.supervisor.workers import ForkServer

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    server = ForkServer(interpret=False, device="cuda")
    server.start()
    yield server
    server.close()


@pytest.fixture
def judged(server, request):
    def judge(name: str, cell: str, budget_s: float = 25.0) -> SpeedVerdict:
        cells = [Cell(name, language_of(cell), code_of(cell))]
        verdict = judge_speed(
            all_exercises()[name], cells, seed=7, budget_s=budget_s, server=server
        )
        print(f"\n{request.node.name}: {verdict}")
        return verdict

    return judge


ADD = """
import torch


def vector_add_triton(x, y):
    return x + y
"""


@pytest.mark.parametrize(
    "name",
    [e.id for e in all_exercises().values() if e.speed is not None],
)
def test_every_solution_earns_gold(judged, name):
    verdict = judged(name, cell_source(all_exercises()[name], solved=True))
    assert verdict.status == "passed", verdict.message
    assert verdict.band == "gold"
    assert verdict.rounds >= 7
    # What gold asks of each differs, by what such a kernel can reach: the band says
    # that. Past 1.10 of a library the gate itself is wrong. A kernel that reads and
    # hardly writes may pass a copy by as much as the memory's peak, which is watched.
    assert verdict.ratio < 1.10 or verdict.peer == "copy bandwidth"


ROUNDED_CELL = """%%cuda
// exercise: matmul_fast
#include <cuda_fp16.h>
__global__ void matmul_fast(const float* a, const float* b, float* c, int m, int n,
                            int k) {
    for (int e = threadIdx.x; e < 128 * 128; e += 256) {
        int row = blockIdx.y * 128 + e / 128, column = blockIdx.x * 128 + e % 128;
        if (row >= m || column >= n) continue;
        float sum = 0.0f;
        for (int i = 0; i < k; ++i) {
            sum += __half2float(__float2half(a[row * k + i])) *
                   __half2float(__float2half(b[i * n + column]));
        }
        c[row * n + column] = sum;
    }
}
"""


def test_a_product_of_rounded_factors_is_wrong_at_the_timed_size(judged):
    verdict = judged("matmul_fast", ROUNDED_CELL)
    assert (verdict.status, verdict.share) == ("failed", 0.0)
    assert "Wrong at the timed size" in verdict.message


def test_a_product_is_rated_by_its_operations(judged):
    exercise = all_exercises()["matmul_register_blocked"]
    verdict = judged(exercise.id, cell_source(exercise, solved=True))
    assert verdict.status == "passed", verdict.message
    assert verdict.tflops is not None and verdict.peer_tflops is not None
    assert verdict.tflops / verdict.peer_tflops == pytest.approx(verdict.ratio, rel=0.1)
    # Far below what memory could bring: operations are what is rated.
    assert verdict.gbps is not None and verdict.gbps < 500


def test_a_functions_own_memory_is_read_where_it_lies(judged):
    verdict = judged("vector_add_triton", ADD)
    assert verdict.status == "passed", verdict.message
    assert 0.95 < verdict.ratio < 1.10
    assert not any("clock" in flag for flag in verdict.flags)


SLOW_CELL = """%%cuda
// exercise: vector_add
__global__ void vector_add(const float* x, const float* y, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    // Neighbouring threads lie far apart: every load is a sector of its own.
    int rows = (n + 1023) / 1024;
    int j = (i % 1024) * rows + i / 1024;
    if (j < n && i / 1024 < rows) out[j] = x[j] + y[j];
}
"""


def test_a_slow_kernel_is_right_and_slow(judged):
    verdict = judged("vector_add", SLOW_CELL)
    assert verdict.status == "passed", verdict.message
    assert verdict.ratio < 0.7
    assert verdict.band != "gold"


def kernel(body: str) -> str:
    return (
        "%%cuda\n// exercise: vector_add\n__global__ void vector_add("
        "const float* x, const float* y, float* out, int n) {\n"
        "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        f"    {body}\n}}\n"
    )


@pytest.mark.parametrize(
    "body",
    [
        "",
        "if (i < n - 1) out[i] = x[i] + y[i];",
        "if (i < n && i % 512) out[i] = x[i] + y[i];",
        "if (i < n) out[i] = 2 * x[i];",
    ],
    ids=["nothing", "last missing", "one in 512 missing", "wrong"],
)
def test_a_kernel_that_leaves_work_out_is_found(judged, body):
    verdict = judged("vector_add", kernel(body))
    assert (verdict.status, verdict.share) == ("failed", 0.0)
    assert "Wrong at the timed size" in verdict.message


CHEATERS = {
    "unfinished": """
import torch
torch._C._cuda_synchronize = lambda: None
aside = torch.cuda.Stream()

def vector_add_triton(x, y):
    out = torch.empty_like(x)
    with torch.cuda.stream(aside):
        torch.cuda._sleep(4_000_000)
        torch.add(x, y, out=out)
    return out
""",
    "cached": """
import torch
known = {}

def vector_add_triton(x, y):
    key = x.data_ptr()
    if key not in known:
        known[key] = x + y
    return known[key]
""",
    "computed when somebody looks": """
import threading, torch

def vector_add_triton(x, y):
    out = torch.empty_like(x)
    threading.Timer(0.05, lambda: torch.add(x, y, out=out)).start()
    return out
""",
    "half": """
import torch

def vector_add_triton(x, y):
    out = torch.empty_like(x)
    n = x.numel() // 2
    torch.add(x[:n], y[:n], out=out[:n])
    return out
""",
    "every second call": """
import torch
state = {"n": 0, "last": None}

def vector_add_triton(x, y):
    state["n"] += 1
    if state["n"] % 2 and state["last"] is not None:
        return torch.empty_like(x)
    state["last"] = x + y
    return state["last"]
""",
    "one result for all": """
import torch
kept = []

def vector_add_triton(x, y):
    if not kept:
        kept.append(torch.empty_like(x))
    return torch.add(x, y, out=kept[0])
""",
    "its input": """
def vector_add_triton(x, y):
    return x.add_(y)
""",
    "half precision": """
def vector_add_triton(x, y):
    return (x.half() + y.half()).float()
""",
    "wrong dtype": """
def vector_add_triton(x, y):
    return x.half() + y.half()
""",
}


@pytest.mark.parametrize("how", CHEATERS)
def test_a_cheater_fails(judged, how):
    verdict = judged("vector_add_triton", CHEATERS[how])
    assert (verdict.status, verdict.share, verdict.band) == ("failed", 0.0, "none")
    assert verdict.message


FORGED_CLOCKS = """
import time, torch

real = torch.cuda.Event.elapsed_time
torch.cuda.Event.elapsed_time = lambda self, other: 0.01 * real(self, other)
for name in ("time", "monotonic", "perf_counter", "perf_counter_ns"):
    setattr(time, name, lambda: 0)
torch.cuda.synchronize = lambda *a: None


def vector_add_triton(x, y):
    torch.cuda._sleep(200_000)
    return x + y
"""


def test_forged_clocks_are_flagged_and_not_believed(judged):
    verdict = judged("vector_add_triton", FORGED_CLOCKS)
    assert verdict.status == "passed", verdict.message
    # A tenth of a millisecond is added to each call's 0.2.
    assert verdict.ratio < 0.8
    assert any("grader's clock decides" in flag for flag in verdict.flags)


LEFT_RUNNING = """
import torch
torch._C._cuda_synchronize = lambda: None
aside = torch.cuda.Stream()


def vector_add_triton(x, y):
    out = x + y
    torch.cuda.current_stream().synchronize()
    with torch.cuda.stream(aside):
        torch.cuda._sleep(20_000_000)
    return out
"""


def test_work_left_running_earns_nothing(judged):
    verdict = judged("vector_add_triton", LEFT_RUNNING)
    assert verdict.status in ("failed", "timeout"), verdict.message
    assert verdict.share == 0.0


ENDINGS = {
    "exits": (
        "import os\n\ndef vector_add_triton(x, y):\n    os._exit(0)\n",
        "crashed",
    ),
    "raises": (
        "def vector_add_triton(x, y):\n    raise ValueError('no')\n",
        "failed",
    ),
    "hangs": ("def vector_add_triton(x, y):\n    while True: pass\n", "timeout"),
    "hogs": (
        "import torch\nhog = []\n\ndef vector_add_triton(x, y):\n"
        "    if not hog:\n"
        "        free = torch.cuda.mem_get_info()[0]\n"
        "        hog.append(torch.empty(int(0.6 * free), dtype=torch.uint8,"
        " device='cuda'))\n"
        "    return x + y\n",
        "failed",
    ),
}


@pytest.mark.parametrize("how", ENDINGS)
def test_whatever_ends_badly_costs_this_exercise_alone(judged, how):
    cell, status = ENDINGS[how]
    verdict = judged("vector_add_triton", cell, budget_s=15.0)
    assert verdict.status == status, verdict.message
    assert verdict.share == 0.0
    assert torch.cuda.is_available()


def test_the_next_hearing_starts_clean(judged):
    assert judged("vector_add_triton", ADD).status == "passed"
