"""What a launch tells the driver, with the driver's place taken by a notebook."""

from __future__ import annotations

import ctypes
import threading
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from kernelwright.cuda import gpu
from kernelwright.cuda.kernel import Kernel
from kernelwright.cuda.module import Module
from kernelwright.cuda.plan import Plan
from kernelwright.cuda.signature import Signature, parse_signature
from kernelwright.errors import ArgumentError, LaunchError


class Driver:
    """Notes what it is called with.

    Args:
        count: words a launch to read.
        failing: messages of the errors that the next launches end in.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.told: list[tuple[int, int]] = []
        self.launches: list[dict[str, Any]] = []
        self.failing: list[str] = []
        self.current = 0

    def set_device(self, device: int) -> None:
        self.told.append((threading.get_ident(), device))
        self.current = device

    def launch(self, function: int, *rest: int) -> None:
        if self.failing:
            raise RuntimeError(self.failing.pop(0))
        *shape, shared, stream, pointers, extra = rest
        assert extra == 0
        # What a parameter's own bytes are is the plan's affair: a word is enough.
        addresses = (ctypes.c_void_p * self.count).from_address(pointers)
        words = [ctypes.string_at(address, 4) for address in addresses]
        self.launches.append(
            {
                "function": function,
                "shape": tuple(shape),
                "shared": shared,
                "stream": stream,
                "words": words,
                "device": self.current,
            }
        )

    def calls(self) -> gpu.Calls:
        return gpu.Calls(
            self.launch, self.set_device, lambda: self.current, lambda device: 70
        )


class Program(gpu.GpuProgram):
    """A program of one kernel whose tensors lie on the CPU."""

    def __init__(self) -> None:
        self.functions = {(0, "k"): (4711, 48 * 1024), (1, "k"): (4712, 48 * 1024)}
        self.signatures = {"k": "void (float const*, float*, int, float)"}

    def plain(self, signature: Signature) -> gpu.PlainGpuLaunch | None:
        plan = Plan.of(signature, "cpu")
        return None if plan is None else gpu.PlainGpuLaunch(self, "k", plan)


@pytest.fixture
def driver(monkeypatch):
    driver = Driver(count=4)
    monkeypatch.setattr(gpu, "calls", driver.calls)
    monkeypatch.setattr(gpu, "known_device", gpu._Thread())

    @contextmanager
    def on(device: int):
        before, driver.current = driver.current, device
        yield
        driver.current = before

    monkeypatch.setattr(torch.cuda, "device", on)
    return driver


@pytest.fixture
def program():
    return Program()


@pytest.fixture
def kernel(driver, program):
    module = Module.__new__(Module)
    signature = parse_signature("k", program.signatures["k"])
    # The emulator's arguments, so that the long way takes tensors on the CPU too.
    module.backend = "emulator"
    module._programs, module._signatures = {"k": program}, {"k": signature}
    module._plain = {"k": program.plain(signature)}
    return Kernel(module, "k")


X, OUT = torch.ones(4), torch.zeros(4)


def test_the_short_way_says_what_the_long_way_says(driver, kernel):
    kernel[(2, 3), 64, 128](X, OUT, 7, 0.5)
    assert [len(x) for x in (driver.launches, driver.told)] == [1, 1]
    # NumPy's float is no plain number.
    kernel[(2, 3), 64, 128](X.numpy(), OUT, 7, 0.5)
    short, long = driver.launches
    assert short == long
    assert short["function"] == 4711
    assert short["shape"] == (2, 3, 1, 64, 1, 1)
    assert (short["shared"], short["stream"], short["device"]) == (128, 70, 0)
    assert short["words"][2] == (7).to_bytes(4, "little")


def test_each_launch_has_its_own_arguments(driver, kernel):
    for n in range(3):
        kernel[1, 32](X, OUT, n, 0.5)
    numbers = [launch["words"][2] for launch in driver.launches]
    assert numbers == [n.to_bytes(4, "little") for n in range(3)]


def test_a_wrong_argument_is_still_explained(driver, kernel):
    with pytest.raises(ArgumentError, match="float64 tensor, and float memory"):
        kernel[1, 32](X.double(), OUT, 1, 0.5)
    with pytest.raises(ArgumentError, match="takes 4 arguments and was given 1"):
        kernel[1, 32](X)
    assert driver.launches == []


def test_a_thread_is_told_its_device_once(driver, kernel):
    for _ in range(3):
        kernel[1, 32](X, OUT, 1, 0.5)
    thread = threading.Thread(target=kernel[1, 32], args=(X, OUT, 2, 0.5))
    thread.start()
    thread.join()
    assert len(driver.launches) == 4
    assert [device for _, device in driver.told] == [0, 0]
    assert len({ident for ident, _ in driver.told}) == 2


def test_a_launch_goes_to_the_tensors_device_and_back(driver, program):
    program.queue("k", (1, 1, 1), (32, 1, 1), 0, pointers(), 1)
    assert driver.launches[0]["device"] == 1
    assert driver.launches[0]["function"] == 4712
    assert driver.current == 0
    # The thread was told of device 1 since: it hears of 0 before it launches there.
    program.queue("k", (1, 1, 1), (32, 1, 1), 0, pointers(), 0)
    assert [device for _, device in driver.told] == [1, 0]


def test_without_tensors_it_goes_to_the_current_device(driver, program):
    driver.current = 1
    program.queue("k", (1, 1, 1), (32, 1, 1), 0, pointers(), None)
    assert driver.launches[0]["function"] == 4712


def test_a_context_that_was_taken_away_is_set_again(driver, kernel):
    kernel[1, 32](X, OUT, 1, 0.5)
    driver.failing = ["CUDA_ERROR_INVALID_CONTEXT: invalid device context"]
    kernel[1, 32](X, OUT, 2, 0.5)
    assert len(driver.launches) == 2
    assert len(driver.told) == 2


def test_a_refused_launch_is_explained_and_gives_its_buffer_back(
    driver, kernel, program, monkeypatch
):
    said = []

    def explain(self, kernel, grid, block, shared, error):
        said.append((kernel, grid, block, shared, str(error)))
        return LaunchError("refused")

    monkeypatch.setattr(gpu.GpuProgram, "_explain", explain)
    driver.failing = ["CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: too many"] * 2
    with pytest.raises(LaunchError, match="refused"):
        kernel[5, 1024](X, OUT, 1, 0.5)
    assert said[0][:4] == ("k", (5, 1, 1), (1024, 1, 1), 0)
    assert len(driver.failing) == 1
    driver.failing = []
    kernel[5, 1024](X, OUT, 3, 0.5)
    assert driver.launches[0]["words"][2] == (3).to_bytes(4, "little")


def pointers() -> int:
    """Return the address of four pointers to words that stay where they are."""
    words = (ctypes.c_uint64 * 4)()
    found = (ctypes.c_void_p * 4)(
        *(ctypes.addressof(words) + 8 * number for number in range(4))
    )
    _KEPT.append((words, found))
    return ctypes.addressof(found)


_KEPT: list[Any] = []
