"""Check a launch's arguments against the kernel's own signature, and pack them."""

from __future__ import annotations

import ctypes
import operator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from kernelwright.cuda.ctypes_map import (
    ELEMENTS,
    SCALARS,
    ElementType,
    ScalarType,
    alignment,
    pack_scalar,
)
from kernelwright.cuda.signature import Parameter, Signature
from kernelwright.errors import ArgumentError


def pack_arguments(
    signature: Signature, arguments: tuple[Any, ...], device_type: str
) -> tuple[list[bytes], list[torch.Tensor]]:
    """Turn Python arguments into one ``bytes`` a parameter.

    Args:
        signature: the kernel's own, as its compiler gave it.
        arguments: torch tensors, NumPy or CuPy arrays, numbers, ``None`` (null), and
            for a pointer to pointers a list of tensors.
        device_type: ``cpu`` for the emulator, ``cuda`` for the GPU.

    Returns:
        The packed parameters, and the tensors behind them, which must outlive the
        launch.

    Raises:
        ArgumentError: naming the argument, what it is and what the kernel wants.
    """
    wanted, got = len(signature.parameters), len(arguments)
    if wanted != got:
        raise ArgumentError(
            f"{signature.name} takes {wanted} arguments and was given {got}.\n"
            f"  wanted: {signature}\n"
            f"  got:    ({', '.join(describe(a) for a in arguments)})"
        )
    packed: list[bytes] = []
    tensors: list[torch.Tensor] = []
    pointers: list[tuple[int, list[int]]] = []  # by parameter
    others: list[torch.Tensor] = []
    for position, (parameter, value) in enumerate(
        zip(signature.parameters, arguments, strict=True), start=1
    ):
        try:
            if parameter.pointer == 1:
                data, tensor = _pack_pointer(parameter, value, device_type)
                if tensor is not None:
                    tensors.append(tensor)
            elif parameter.pointer == 2:
                addresses, peers = _addresses(parameter, value, device_type)
                pointers.append((position - 1, addresses))
                others += peers
                data = b""
            else:
                data = _pack_value(parameter, value)
        except ArgumentError as error:
            raise ArgumentError(
                f"{signature.name}: argument {position} of {wanted} ({parameter}) "
                f"{error}\n  signature: {signature}"
            ) from None
        packed.append(data)
    _check_one_device(signature, tensors)
    for place, addresses in pointers:
        home = (tensors or others)[0].device if tensors or others else device_type
        there = torch.tensor(addresses, dtype=torch.int64, device=home)
        packed[place] = there.data_ptr().to_bytes(8, "little")
        tensors.append(there)
    return packed, tensors + others


def _addresses(
    parameter: Parameter, value: Any, device_type: str
) -> tuple[list[int], list[torch.Tensor]]:
    """Return the addresses of a list of tensors, which may be other devices'."""
    if not isinstance(value, (list, tuple)):
        raise ArgumentError(
            f"is {describe(value)}: a pointer to pointers takes a list of tensors."
        )
    each = replace(parameter, pointer=1)
    packed = [_pack_pointer(each, item, device_type) for item in value]
    addresses = [int.from_bytes(data, "little") for data, _ in packed]
    return addresses, [tensor for _, tensor in packed if tensor is not None]


def describe(value: Any) -> str:
    """Say in a few words what a value is, as messages quote it."""
    if isinstance(value, torch.Tensor):
        shape = "x".join(map(str, value.shape)) or "scalar"
        return f"{_dtype_name(value.dtype)} tensor {shape} on {value.device}"
    if isinstance(value, np.ndarray):
        return f"NumPy {value.dtype} array {'x'.join(map(str, value.shape))}"
    if isinstance(value, (bool, int, float)):
        return f"{type(value).__name__} {value}"
    return type(value).__name__


def as_tensor(value: Any) -> torch.Tensor:
    """View an array of another library as a torch tensor, without a copy."""
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, np.ndarray):
        if not value.flags.writeable:
            raise ArgumentError("is a read-only NumPy array: pass array.copy().")
        try:
            return torch.from_numpy(value)
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"is {describe(value)}: {error}.") from None
    if hasattr(value, "__dlpack__"):
        return torch.utils.dlpack.from_dlpack(value)
    raise ArgumentError(
        f"is {describe(value)}, not a tensor: pass a torch tensor, or a NumPy or "
        "CuPy array."
    )


def _pack_pointer(
    parameter: Parameter, value: Any, device_type: str
) -> tuple[bytes, torch.Tensor | None]:
    if value is None:
        return (0).to_bytes(8, "little"), None
    tensor = as_tensor(value)
    _check_memory(tensor, device_type)
    # void* and a struct of the author's own take memory of any dtype.
    element = ELEMENTS.get(parameter.ctype)
    if element is not None:
        _check_elements(parameter, tensor, element)
    return tensor.data_ptr().to_bytes(8, "little"), tensor


def _check_memory(tensor: torch.Tensor, device_type: str) -> None:
    if tensor.layout != torch.strided:
        raise ArgumentError(f"is a {tensor.layout} tensor: pass tensor.to_dense().")
    if tensor.device.type != device_type:
        if device_type == "cpu":
            raise ArgumentError(
                f"is on {tensor.device}, and the emulator runs on CPU memory: pass "
                "tensor.cpu()."
            )
        raise ArgumentError(
            f"is on {tensor.device}, and the kernel runs on the GPU: pass "
            "tensor.cuda()."
        )
    if not tensor.is_contiguous():
        raise ArgumentError(
            f"is not contiguous (shape {tuple(tensor.shape)}, strides "
            f"{tensor.stride()}): a kernel sees only an address, so it would read "
            "the wrong elements. Pass tensor.contiguous()."
        )
    if tensor.is_conj() or tensor.is_neg():
        raise ArgumentError("is a lazy view: pass tensor.resolve_conj().resolve_neg().")


def _check_elements(
    parameter: Parameter, tensor: torch.Tensor, element: ElementType
) -> None:
    if tensor.dtype not in element.dtypes:
        raise ArgumentError(
            f"is a {_dtype_name(tensor.dtype)} tensor, and {parameter.ctype} memory "
            f"is {_dtype_name(element.dtypes[0])}: pass "
            f"tensor.to({element.dtypes[0]}), or change the parameter's type."
        )
    if tensor.numel() and tensor.data_ptr() % alignment(element):
        raise ArgumentError(
            f"starts at an address that is not a multiple of {alignment(element)} "
            f"bytes, as {parameter.ctype} needs (a slice such as x[1:] does that): "
            "pass tensor.clone()."
        )


def _check_one_device(signature: Signature, tensors: list[torch.Tensor]) -> None:
    devices = sorted({str(tensor.device) for tensor in tensors})
    if len(devices) > 1:
        raise ArgumentError(
            f"{signature.name} was given tensors on {' and '.join(devices)}: a "
            "kernel runs on one device. Move them to one with tensor.to(device)."
        )


def _pack_value(parameter: Parameter, value: Any) -> bytes:
    if parameter.pointer > 1:
        raise ArgumentError("is a pointer to pointers to pointers: none can be passed.")
    scalar = SCALARS.get(parameter.ctype)
    if scalar is not None:
        return pack_scalar(scalar, _checked_number(parameter, scalar, value))
    # A struct by value: its bytes, from ctypes, NumPy or a CUDA descriptor.
    if isinstance(value, (bytes, bytearray, np.void, ctypes.Structure)):
        return value.tobytes() if isinstance(value, np.void) else bytes(value)
    element = ELEMENTS.get(parameter.ctype)
    if element is not None and isinstance(value, (tuple, list)):
        if len(value) != element.lanes:
            raise ArgumentError(f"wants {element.lanes} numbers, got {len(value)}.")
        tensor = torch.tensor(value, dtype=element.dtypes[0])
        return tensor.view(torch.uint8).numpy().tobytes()
    raise ArgumentError(
        f"is a {parameter.ctype} by value: pass its bytes (a ctypes.Structure, a "
        f"numpy.void or bytes); got {describe(value)}."
    )


def _checked_number(
    parameter: Parameter, scalar: ScalarType, value: Any
) -> int | float:
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        raise ArgumentError(
            f"is a tensor where the kernel takes a plain {parameter.ctype}: pass "
            "tensor.item()."
        )
    if scalar.kind == "float":
        try:
            return float(value)
        except (TypeError, ValueError, OverflowError):
            raise ArgumentError(f"wants a number, got {describe(value)}.") from None
    try:
        number = operator.index(value)
    except TypeError:
        mend = f": pass int({value!r})" if isinstance(value, float) else ""
        raise ArgumentError(f"wants an integer, got {describe(value)}{mend}.") from None
    if scalar.kind == "bool":
        return bool(number)
    if not scalar.low <= number <= scalar.high:
        raise ArgumentError(
            f"is {number}, outside {parameter.ctype}'s range "
            f"[{scalar.low}, {scalar.high}]: use a wider type in the kernel."
        )
    return number


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
