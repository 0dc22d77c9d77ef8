"""Launches of Triton's and Gluon's kernels: by Triton once, by the driver afterwards.

Triton's own launch takes a kernel's arguments apart every time. What it finds depends
on their types, and on which of them are 1 or multiples of 16: all the same for the
calls that share a recording. So the compiled kernel is held, and its parameters are
laid out here as its machine code takes them:

    pointers, integers, floats    in the order of the signature, constants left out
    tensor descriptors            the tensor map, then its shape and its strides
    two addresses                 of memory that some kernels ask Triton for; here null

The driver is asked whether that is how the kernel takes them. Where it is not, or where
a kernel wants more (clusters, a cooperative launch), Triton launches it every time.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import torch

from kernelwright.cuda.gpu import enter
from kernelwright.cuda.watch import Varying, unwrapped
from kernelwright.operators.memory import (
    Address,
    Constant,
    Number,
    Parameter,
    TensorMap,
)
from kernelwright.operators.recorder import (
    Launch,
    Recorder,
    current_recorder,
)
from kernelwright.placing import on_device_of

_INTEGERS = {
    "i1": "B", "u1": "B", "i8": "b", "u8": "B", "i16": "h", "u16": "H",
    "i32": "i", "u32": "I", "i64": "q", "u64": "Q",
}  # fmt: skip
_FLOATS = {"fp32": "f", "f32": "f", "fp64": "d"}
_MAP_BYTES = 128


class Unholdable(Exception):
    """Why a kernel is left to Triton."""


class held:
    """A kernel of Triton's or Gluon's that recorded calls launch without Triton.

    ``held(kernel)[grid](x, n, BLOCK=256)`` is ``kernel[grid](x, n, BLOCK=256)`` on the
    device of the first tensor.

    Args:
        kernel: what ``triton.jit`` or ``gluon.jit`` made.
    """

    __slots__ = ("_kernel",)

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        """Choose how many programs there are along x, y, z."""
        return partial(_launch, self._kernel, grid)


def _launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **named: Any) -> None:
    recorder = current_recorder()
    first = next(_tensors_of(arguments))
    if recorder is None:
        with on_device_of(first):
            _enter(first)
            kernel[grid](*arguments, **named)
        return
    with recorder.paused(), on_device_of(first):
        _enter(first)
        plain = {name: unwrapped(value) for name, value in named.items()}
        compiled = kernel[grid](*map(unwrapped, arguments), **plain)
    try:
        if compiled is None:
            raise Unholdable("it runs under Triton's interpreter")
        bound = dict(zip(kernel.arg_names, arguments, strict=False)) | named
        recorder.add_launch(_by_driver(compiled, grid, bound, recorder))
    except (Unholdable, AttributeError, KeyError, TypeError) as reason:
        recorder.refuse(f"{type(reason).__name__}: {reason}")


def _enter(tensor: torch.Tensor) -> None:
    """Tell this thread its device: a tensor map cannot be made without a context."""
    if tensor.is_cuda:
        enter(tensor.get_device())


def _by_driver(
    compiled: Any, grid: tuple[int, ...], bound: Mapping[str, Any], recorder: Recorder
) -> Launch:
    """Return a launch by the driver of what Triton compiled.

    Raises:
        Unholdable: where Triton does more than that for it.
    """
    told = compiled.metadata
    if told.num_ctas != 1 or told.launch_cooperative_grid or told.launch_pdl:
        raise Unholdable("it is launched with attributes")
    if told.global_scratch_size or told.profile_scratch_size:
        raise Unholdable("it asks for memory")
    maps = iter(getattr(told, "tensordesc_meta", None) or ())
    parameters: list[Parameter] = []
    for name, kind in compiled.src.signature.items():
        if kind != "constexpr":
            parameters += _parameters(kind, bound[name], maps, recorder)
    parameters += [Constant(bytes(8)), Constant(bytes(8))]
    function = int(compiled.function)
    wanted = _sizes(function, len(parameters))
    if wanted != [_size(parameter) for parameter in parameters]:
        raise Unholdable(f"its parameters have {wanted} bytes")
    x, y, z = (*grid, 1, 1)[:3]
    block = (32 * told.num_warps, 1, 1)
    return Launch(compiled, told.name, (x, y, z), block, told.shared, tuple(parameters))


def _parameters(
    kind: str, value: Any, maps: Any, recorder: Recorder
) -> list[Parameter]:
    if kind.startswith("*"):
        return [recorder.pointer(value)]
    if type(value) is Varying:
        if not (kind in _INTEGERS or kind in _FLOATS):
            raise Unholdable(f"it is compiled for one value of what varies ({kind})")
        code = {**_INTEGERS, **_FLOATS}[kind]
        return [recorder.number(value, struct.pack(f"<{code}", value.value))]
    if kind in _INTEGERS:
        return [Constant(struct.pack(f"<{_INTEGERS[kind]}", int(value)))]
    if kind in _FLOATS:
        return [Constant(struct.pack(f"<{_FLOATS[kind]}", float(value)))]
    if kind.startswith("tensordesc"):
        address = recorder.pointer(value.base)
        if not isinstance(address, Address):
            return []
        data = _map_of(value, next(maps))
        shape = [Constant(struct.pack("<i", size)) for size in value.shape]
        strides = [Constant(struct.pack("<q", step)) for step in value.strides]
        return [TensorMap(data, address), *shape, *strides]
    raise Unholdable(f"a parameter is {kind}")


def _size(parameter: Parameter) -> int:
    if isinstance(parameter, Constant):
        return len(parameter.data)
    if isinstance(parameter, Number):
        return struct.calcsize(parameter.code)
    return _MAP_BYTES if isinstance(parameter, TensorMap) else 8


def _tensors_of(arguments: tuple[Any, ...]) -> Any:
    for value in arguments:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(getattr(value, "base", None), torch.Tensor):
            yield value.base


def _map_of(descriptor: Any, meta: Any) -> bytes:
    """Return the tensor map that Triton has the driver make of a descriptor."""
    from triton.backends.nvidia.driver import make_tensordesc_arg

    if meta is None:
        raise Unholdable("its descriptors are no tensor maps")
    made = make_tensordesc_arg(descriptor, meta)[0]
    # A Python object that ends with the map.
    data = ctypes.string_at(
        id(made) + type(made).__basicsize__ - _MAP_BYTES, _MAP_BYTES
    )
    _check_moves(descriptor, meta, data)
    return data


def _check_moves(descriptor: Any, meta: Any, data: bytes) -> None:
    """Make sure that these bytes, moved by the driver, are another tensor's map."""
    from triton.backends.nvidia.driver import make_tensordesc_arg

    class Other:
        """The same tensor 4 KiB further on; nobody reads there."""

        def data_ptr(self) -> int:
            return int(descriptor.base.data_ptr()) + 4096

    class Moved:
        base = Other()

        def __getattr__(self, name: str) -> Any:
            return getattr(descriptor, name)

    other = make_tensordesc_arg(Moved(), meta)[0]
    wanted = ctypes.string_at(
        id(other) + type(other).__basicsize__ - _MAP_BYTES, _MAP_BYTES
    )
    memory = ctypes.create_string_buffer(_MAP_BYTES + 64)
    begin = -(-ctypes.addressof(memory) // 64) * 64
    ctypes.memmove(begin, data, _MAP_BYTES)
    code = _driver().cuTensorMapReplaceAddress(
        ctypes.c_void_p(begin), ctypes.c_void_p(Other().data_ptr())
    )
    if code or ctypes.string_at(begin, _MAP_BYTES) != wanted:
        raise Unholdable("its tensor maps cannot be moved")


@cache
def _driver() -> Any:
    return ctypes.CDLL("libcuda.so.1")


def _sizes(function: int, count: int) -> list[int]:
    """Ask the driver for the bytes of a kernel's parameters, one more than awaited."""
    ask: Callable[..., int] = _driver().cuFuncGetParamInfo
    found = []
    for place in range(count + 1):
        offset, size = ctypes.c_size_t(), ctypes.c_size_t()
        code = ask(
            ctypes.c_void_p(function),
            ctypes.c_size_t(place),
            ctypes.byref(offset),
            ctypes.byref(size),
        )
        if code:
            break
        found.append(int(size.value))
    return found
