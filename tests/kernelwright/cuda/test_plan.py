"""The short way packs what the long way packs, or declines."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np
import pytest
import torch

from kernelwright.cuda.arguments import pack_arguments
from kernelwright.cuda.plan import Plan
from kernelwright.cuda.signature import parse_signature
from kernelwright.errors import ArgumentError

X = torch.arange(8.0)


def plan_of(function_type: str) -> Plan:
    plan = Plan.of(parse_signature("kernel", f"void ({function_type})"), "cpu")
    assert plan is not None
    return plan


def at_pointers(address: int, sizes: list[int]) -> list[bytes]:
    """Read the parameters where the driver would."""
    pointers = (ctypes.c_void_p * max(1, len(sizes))).from_address(address)
    return [
        ctypes.string_at(pointers[number], size) for number, size in enumerate(sizes)
    ]


TAKEN = [
    ("", ()),
    ("float const*, float*, int, int, float", (X, X, 3, -4, 0.1)),
    ("float4*, float3*, int*", (X, X, torch.arange(3, dtype=torch.int32))),
    ("unsigned int*, bool*", (torch.zeros(4, dtype=torch.int32), torch.ones(2) > 0)),
    ("float*, int", (None, 0)),
    ("void*, Particle*", (X, torch.zeros(3, dtype=torch.int16))),
    ("float*", (torch.nn.Parameter(X.clone()),)),
    ("float*", (torch.zeros(0),)),
    ("signed char, unsigned char, short, unsigned short", (-128, 255, -5, 65535)),
    ("long, unsigned long", (-(2**63), 2**64 - 1)),
    ("bool, bool", (True, False)),
    ("float, double, float", (float("inf"), -0.0, 7)),
    ("__half, __nv_bfloat16, __half", (1e6, 1.00390625, 0.1)),
    ("float, int", (2.0**-149, 2**31 - 1)),
]


@pytest.mark.parametrize(("function_type", "arguments"), TAKEN)
def test_plain_arguments_are_packed_as_the_long_way_packs_them(
    function_type: str, arguments: tuple[Any, ...]
) -> None:
    signature = parse_signature("kernel", f"void ({function_type})")
    wanted, _ = pack_arguments(signature, arguments, "cpu")
    plan = plan_of(function_type)
    ready = plan.pack(arguments)
    assert ready is not None
    buffer, device = ready
    assert at_pointers(buffer.address, [len(data) for data in wanted]) == wanted
    assert device is None


def test_rounding_to_a_float_is_the_long_way_s() -> None:
    plan = plan_of("float, float")
    signature = parse_signature("kernel", "void (float, float)")
    draw = np.random.default_rng(5)
    bits = draw.integers(0, 2**64, 4000, dtype=np.uint64).view(np.float64)
    near = draw.standard_normal(4000) * 10.0 ** draw.integers(-46, 39, 4000)
    taken = 0
    for pair in zip(bits.tolist(), near.tolist(), strict=True):
        ready = plan.pack(pair)
        if ready is None:
            # Past a float's range, where the long way makes an infinity.
            assert any(abs(value) > 3.4e38 for value in pair)
            continue
        taken += 1
        wanted, _ = pack_arguments(signature, pair, "cpu")
        assert at_pointers(ready[0].address, [4, 4]) == wanted
        plan.release(ready[0])
    assert taken > 1000


def test_a_nan_stays_one() -> None:
    ready = plan_of("float, double").pack((float("nan"), float("nan")))
    assert ready is not None
    single, double = at_pointers(ready[0].address, [4, 8])
    assert np.isnan(np.frombuffer(single, np.float32)).all()
    assert np.isnan(np.frombuffer(double, np.float64)).all()


class Subclass(torch.Tensor):
    """A tensor with answers of its own."""


DECLINED = [
    ("float*, int", (X,)),
    ("float*", (X.double(),)),
    ("float*", (X.view(2, 4).t(),)),
    ("float*", ([1.0],)),
    ("float*", (np.zeros(4, np.float32),)),
    ("float4*", (X[1:5],)),
    ("float*", (X.to_sparse(),)),
    ("float*", (X.to("meta"),)),
    ("float*, float*", (X, X.to("meta"))),
    ("float*", (X.as_subclass(Subclass),)),
    ("float*", (torch.complex(X, X).conj().imag,)),
    ("void*", (torch.complex(X, X).conj(),)),
    ("int", (2.0,)),
    ("int", (2**31,)),
    ("int", (True,)),
    ("int", (np.int64(5),)),
    ("unsigned int", (-1,)),
    ("int", (torch.tensor(3),)),
    ("float", (1e300,)),
    ("float", (torch.tensor(1.0),)),
    ("float", (np.float64(0.5),)),
    ("float", ("x",)),
    ("bool", (1,)),
]


@pytest.mark.parametrize(("function_type", "arguments"), DECLINED)
def test_all_else_is_left_to_the_long_way(
    function_type: str, arguments: tuple[Any, ...]
) -> None:
    plan = plan_of(function_type)
    assert plan.pack(arguments) is None
    assert len(plan._free) <= 1


@pytest.mark.parametrize("function_type", ["Pair", "float4", "float**"])
def test_a_parameter_that_is_no_plain_one_has_no_plan(function_type: str) -> None:
    signature = parse_signature("kernel", f"void (float*, {function_type})")
    assert Plan.of(signature, "cpu") is None


def test_a_plan_for_the_gpu_declines_tensors_on_the_cpu() -> None:
    signature = parse_signature("kernel", "void (float*)")
    plan = Plan.of(signature, "cuda")
    assert plan is not None
    assert plan.pack((X,)) is None
    with pytest.raises(ArgumentError, match=r"pass tensor\.cuda\(\)"):
        pack_arguments(signature, (X,), "cuda")


def test_a_buffer_serves_one_launch_at_a_time_and_then_the_next() -> None:
    plan = plan_of("int")
    first, second = plan.pack((1,)), plan.pack((2,))
    assert first is not None and second is not None
    assert first[0] is not second[0]
    assert at_pointers(first[0].address, [4]) == [b"\1\0\0\0"]
    plan.release(first[0])
    third = plan.pack((3,))
    assert third is not None and third[0] is first[0]
    assert at_pointers(second[0].address, [4]) == [b"\2\0\0\0"]


def test_launches_of_several_threads_do_not_mix() -> None:
    plan = plan_of("long long, long long")
    wrong: list[tuple[bytes, ...]] = []

    def launch(own: int) -> None:
        for step in range(2000):
            ready = plan.pack((own, step))
            assert ready is not None
            found = at_pointers(ready[0].address, [8, 8])
            if found != [own.to_bytes(8, "little"), step.to_bytes(8, "little")]:
                wrong.append(tuple(found))
            plan.release(ready[0])

    threads = [threading.Thread(target=launch, args=(own,)) for own in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert 1 <= len(plan._free) <= 4
