from __future__ import annotations

import ctypes
import re
import struct
from typing import Any

import numpy as np
import pytest
import torch

from kernelwright.cuda.arguments import pack_arguments
from kernelwright.cuda.signature import parse_signature
from kernelwright.errors import ArgumentError


def pack(function_type: str, *arguments: Any) -> list[bytes]:
    signature = parse_signature("kernel", f"void ({function_type})")
    return pack_arguments(signature, arguments, "cpu")[0]


def test_signature_reads_as_c() -> None:
    signature = parse_signature(
        "ns::k<float>", "void (*)(float const*, __half*, unsigned long long, A<int, 2>)"
    )
    assert str(signature) == (
        "ns::k<float>(const float*, __half*, unsigned long long, A<int, 2>)"
    )
    assert [p.const for p in signature.parameters] == [True, False, False, False]


def test_a_kernel_may_take_nothing() -> None:
    assert parse_signature("k", "void ()").parameters == ()
    assert pack("") == []


@pytest.mark.parametrize(
    ("ctype", "value", "code"),
    [
        ("int", -7, "i"),
        ("unsigned int", 2**32 - 1, "I"),
        ("long long", -(2**63), "q"),
        ("unsigned long", 2**64 - 1, "Q"),
        ("float", 0.1, "f"),
        ("double", 3, "d"),
        ("__half", 1.5, "e"),
        ("bool", True, "?"),
        ("signed char", -128, "b"),
        ("float", float("inf"), "f"),
    ],
)
def test_numbers_become_the_type_that_the_signature_names(
    ctype: str, value: float, code: str
) -> None:
    assert pack(ctype, value) == [struct.pack(f"<{code}", value)]


def test_a_float_too_large_for_its_type_becomes_infinity() -> None:
    assert pack("float", 1e300) == [struct.pack("<f", float("inf"))]
    assert pack("__half", 1e6) == [struct.pack("<e", float("inf"))]


def test_bfloat16_rounds_to_nearest_even() -> None:
    assert pack("__nv_bfloat16", 1.0) == [b"\x80\x3f"]
    assert pack("__nv_bfloat16", 1.00390625) == [b"\x80\x3f"]


def test_numpy_scalars_are_numbers() -> None:
    assert pack("int", np.int64(5)) == [struct.pack("<i", 5)]
    assert pack("float", np.float32(0.5)) == [struct.pack("<f", 0.5)]


def test_pointers_are_addresses() -> None:
    x = torch.arange(8.0)
    array = np.arange(8, dtype=np.int32)
    types = "float const*, int*, float4*, void*, float*, Particle*"
    packed = pack(types, x, array, x, x, None, x)
    address = x.data_ptr().to_bytes(8, "little")
    assert packed[0] == packed[2] == packed[3] == packed[5] == address
    assert int.from_bytes(packed[1], "little") == array.ctypes.data
    assert packed[4] == bytes(8)


def test_a_struct_goes_by_value_as_its_bytes() -> None:
    class Pair(ctypes.Structure):
        _fields_ = (("a", ctypes.c_int), ("b", ctypes.c_float))

    assert pack("Pair", Pair(1, 2.0)) == [struct.pack("<if", 1, 2.0)]
    assert pack("float4", (1, 2, 3, 4)) == [struct.pack("<4f", 1, 2, 3, 4)]


X = torch.arange(8.0)
REFUSED = [
    ("float*, int", (X,), "takes 2 arguments and was given 1"),
    ("float*", (X.double(),), "float64 tensor, and float memory is float32"),
    ("float*", (X.view(2, 4).t(),), "not contiguous .* Pass tensor.contiguous()"),
    ("float*", ([1.0],), "is list, not a tensor"),
    ("float*", (3,), "is int 3, not a tensor"),
    ("float4*", (X[1:5],), "not a multiple of 16 bytes"),
    ("float*", (X.to_sparse(),), "sparse"),
    ("int", (2.0,), r"wants an integer, got float 2.0: pass int\(2.0\)"),
    ("int", (2**31,), "outside int's range"),
    ("unsigned int", (-1,), "outside unsigned int's range"),
    ("int", (torch.tensor(3),), r"pass tensor.item\(\)"),
    ("float", ("x",), "wants a number, got str"),
    ("float**", (X,), "a pointer to pointers takes a list of tensors"),
    ("float***", ([X],), "is a pointer to pointers to pointers"),
    ("Pair", (3,), "Pair by value: pass its bytes"),
    ("float4", ((1, 2),), "wants 4 numbers, got 2"),
    ("float*", (X.to("meta"),), "is on meta, and the emulator runs on CPU memory"),
]


@pytest.mark.parametrize(("function_type", "arguments", "words"), REFUSED)
def test_a_wrong_argument_says_what_it_is_and_how_to_mend_it(
    function_type: str, arguments: tuple[Any, ...], words: str
) -> None:
    with pytest.raises(ArgumentError, match=words):
        pack(function_type, *arguments)


def test_the_message_names_the_argument_and_the_signature() -> None:
    with pytest.raises(ArgumentError) as caught:
        pack("float const*, float*, int", X, X.double(), 8)
    assert re.search(r"argument 2 of 3 \(float\*\)", str(caught.value))
    assert "kernel(const float*, float*, int)" in str(caught.value)


def test_a_read_only_array_is_refused() -> None:
    array = np.arange(4.0, dtype=np.float32)
    array.flags.writeable = False
    with pytest.raises(ArgumentError, match="read-only"):
        pack("float const*", array)


def test_unsigned_memory_takes_a_signed_tensor() -> None:
    x = torch.zeros(4, dtype=torch.int32)
    assert pack("unsigned int*", x) == [x.data_ptr().to_bytes(8, "little")]
