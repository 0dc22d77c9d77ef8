"""The emulator inside a process: signals, forks, threads, interrupts, builds."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from kernelwright.emulator import toolchain
from kernelwright.emulator.launch import Entry
from kernelwright.emulator.module import load_module
from kernelwright.errors import KernelFault

DOUBLE = """__global__ void k(int* p, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) p[i] *= 2;
}"""


def run_python(body: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a process of its own, where a crash hurts nobody."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(body)],
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_several_python_threads_launch_at_once(build):
    kernel = build(DOUBLE)

    def work(seed: int) -> bool:
        data = np.arange(5000, dtype=np.int32) + seed
        for _ in range(20):
            kernel("k", 20, 256, data, 5000)
        with np.errstate(over="ignore"):
            wanted = (np.arange(5000, dtype=np.int32) + seed) * np.int32(2**20)
        return bool((data == wanted).all())

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(work, range(8)))


def test_the_gil_is_released_while_a_kernel_runs(build):
    kernel = build("__global__ void k(volatile int* p) { while (p[0] == 0) {} }")
    flag = np.zeros(1, np.int32)
    timer = threading.Timer(0.05, lambda: flag.fill(1))
    timer.start()
    kernel("k", 1, 1, flag)
    timer.join()


def test_a_forked_child_launches_with_workers_of_its_own(build):
    kernel = build(DOUBLE)
    data = np.arange(1000, dtype=np.int32)
    kernel("k", 4, 256, data, 1000)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            for _ in range(3):
                kernel("k", 4, 256, data, 1000)
            os.write(write, data[:4].tobytes())
            try:
                kernel("k", 1, 1, np.zeros(1, np.int32), 1 << 30)
                build("__global__ void k(int* p) { *p = 1; }")(
                    "k", 1, 1, __import__("ctypes").c_void_p(0)
                )
            except KernelFault:
                code = 0
        finally:
            os._exit(code)
    os.close(write)
    got = np.frombuffer(os.read(read, 64), np.int32)
    os.close(read)
    assert os.waitpid(child, 0)[1] == 0
    assert (got == np.arange(4) * 16).all()
    kernel("k", 4, 256, data, 1000)
    assert (data == np.arange(1000) * 4).all()


@pytest.fixture
def python_answers_ctrl_c():
    """Undo what a shell does to its background jobs, which ignore SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_ends_a_launch_that_does_not(build, python_answers_ctrl_c):
    kernel = build("__global__ void k() { while (true) {} }")
    timer = threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT))
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        # In here: on a busy machine it may come before the launch.
        timer.start()
        kernel("k", 8, 64, deadline_s=None)
    timer.join()
    assert time.monotonic() - begin < 30


def test_a_fault_that_is_not_ours_still_ends_the_process():
    done = run_python(
        """
        import ctypes, faulthandler, numpy as np
        from kernelwright.emulator import Library
        lib = Library.build("__global__ void k(int* p) { *p = 1; }",
                            filename="kernel.cu", kernels=["k"])
        faulthandler.enable()
        x = np.zeros(1, np.int32)
        lib.launch("k", (1,), (1,), 0, [ctypes.c_void_p(x.ctypes.data)])
        try:
            lib.launch("k", (1,), (1,), 0, [ctypes.c_void_p(0)])
        except Exception as error:
            print(type(error).__name__, flush=True)
        ctypes.string_at(0)
        """
    )
    assert done.stdout == "KernelFault\n"
    assert done.returncode == -signal.SIGSEGV
    assert done.stderr.count("Fatal Python error: Segmentation fault") == 1


@pytest.mark.parametrize("when", ["before", "after"])
def test_without_faulthandler_a_foreign_fault_ends_the_process_too(when):
    enable = "import faulthandler; faulthandler.enable()"
    done = run_python(
        f"""
        import ctypes, numpy as np
        from kernelwright.emulator import Library
        {enable if when == "before" else ""}
        lib = Library.build("__global__ void k() {{}}",
                            filename="kernel.cu", kernels=["k"])
        lib.launch("k", (1,), (1,), 0, [])
        {enable if when == "after" else ""}
        ctypes.string_at(0)
        """
    )
    assert done.returncode == -signal.SIGSEGV
    assert "Segmentation fault" in done.stderr


def test_two_builds_of_one_source_have_variables_of_their_own(build):
    source = """__device__ int calls = 0;
    __global__ void k(int* p) { p[0] = ++calls; }"""
    out = np.zeros(1, np.int32)
    first, second = build(source), build(source)
    first("k", 1, 1, out)
    first("k", 1, 1, out)
    assert out[0] == 2
    second("k", 1, 1, out)
    assert out[0] == 1


def test_a_text_is_loaded_twice_from_a_cache_that_can_only_be_read(build):
    library = build(DOUBLE).library
    # Nobody, not even root, makes a file in /proc.
    with library._path.open("rb") as file:
        path = Path(f"/proc/self/fd/{file.fileno()}")
        first, second = load_module(path), load_module(path)
    entry = [
        ctypes.addressof(Entry.in_dll(m, "kwemu_entry_0")) for m in (first, second)
    ]
    assert entry[0] != entry[1]


def test_one_worker_is_enough(build, monkeypatch):
    monkeypatch.setenv("KERNELWRIGHT_THREADS", "1")
    data = np.arange(1000, dtype=np.int32)
    build(DOUBLE)("k", 4, 256, data, 1000)
    assert (data == np.arange(1000) * 2).all()


def test_processes_that_miss_the_cache_at_once_all_get_a_library(start_lean):
    script = f"""
    from kernelwright.emulator import Library
    source = "__global__ void k(int) {{}} // {time.time_ns()}"
    lib = Library.build(source, filename="k.cu", kernels=["k"])
    lib.launch("k", (1,), (1,), 0, [b"abcd"])
    print(lib.signatures["k"])
    """
    processes = [start_lean(script) for _ in range(3)]
    for process in processes:
        assert process.communicate(timeout=120)[0] == "void (int)\n"
        assert process.returncode == 0


def test_clangs_prelude_is_remade_when_a_header_is_newer(monkeypatch, tmp_path):
    header = tmp_path / "prelude.h"
    header.write_text("// a header")
    monkeypatch.setattr(toolchain, "NATIVE", tmp_path)
    before = toolchain._places_and_times()
    assert toolchain._places_and_times() == before
    os.utime(header, (1, 1))
    assert toolchain._places_and_times() != before
