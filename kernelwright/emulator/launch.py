"""The runtime through ctypes: start a launch, wait for it, turn its end into Python."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from pathlib import Path

_MAX_WAITERS = 24


class Spec(ctypes.Structure):
    """What a launch is; the layout of ``Spec`` in runtime/state.h."""

    _fields_ = [
        ("thunk", ctypes.c_void_p),
        ("arguments", ctypes.c_void_p),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_uint32),
        ("poison", ctypes.c_uint32),
        ("text_begin", ctypes.c_uint64),
        ("text_end", ctypes.c_uint64),
        ("load_address", ctypes.c_uint64),
        ("tls_module", ctypes.c_uint64),
        ("tls_bytes", ctypes.c_uint64),
        ("deadline_s", ctypes.c_double),
        ("trace", ctypes.c_void_p),
        ("ranks", ctypes.c_uint32),
        ("argument_count", ctypes.c_uint32),
    ]


class Waiter(ctypes.Structure):
    """A group of threads that wait in one place; ``Waiter`` in runtime/state.h."""

    _fields_ = [
        ("operation", ctypes.c_int32),
        ("line", ctypes.c_int32),
        ("mask", ctypes.c_uint32),
        ("count", ctypes.c_uint32),
        ("thread", ctypes.c_uint32 * 3),
    ]


class Outcome(ctypes.Structure):
    """What became of a launch; the layout of ``Outcome`` in runtime/state.h."""

    _fields_ = [
        ("kind", ctypes.c_int32),
        ("signal", ctypes.c_int32),
        ("code", ctypes.c_int32),
        ("line", ctypes.c_int32),
        ("other_line", ctypes.c_int32),
        ("wrote", ctypes.c_int32),
        ("stack_overflow", ctypes.c_int32),
        ("mask", ctypes.c_uint32),
        ("address", ctypes.c_uint64),
        ("pc", ctypes.c_uint64),
        ("block", ctypes.c_uint32 * 3),
        ("thread", ctypes.c_uint32 * 3),
        ("waiter_count", ctypes.c_uint32),
        ("early_exit_line", ctypes.c_int32),
        ("waiters", Waiter * _MAX_WAITERS),
        ("text", ctypes.c_char * 256),
        ("printed_bytes", ctypes.c_uint64),
        ("printed", ctypes.c_void_p),
        ("print_cut", ctypes.c_int32),
        ("rank", ctypes.c_uint32),
        ("unbegun", ctypes.c_uint64),
    ]


class ModuleLayout(ctypes.Structure):
    """Where a kernel module lies in memory; ``ModuleLayout`` in runtime/pool.cpp."""

    _fields_ = [
        ("load_address", ctypes.c_uint64),
        ("text_begin", ctypes.c_uint64),
        ("text_end", ctypes.c_uint64),
        ("tls_module", ctypes.c_uint64),
        ("tls_bytes", ctypes.c_uint64),
        ("writable_bytes", ctypes.c_uint64),
        ("image_end", ctypes.c_uint64),
    ]


class Entry(ctypes.Structure):
    """A kernel's entry in its module; ``kwemu::Entry`` in kwemu/thunk.h."""

    _fields_ = [
        ("thunk", ctypes.c_void_p),
        ("type", ctypes.c_char_p),
        ("sizes", ctypes.POINTER(ctypes.c_uint32)),
        ("count", ctypes.c_uint32),
    ]


class Runtime:
    """The runtime library, loaded once a process and visible to every module."""

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        self.start = library.kwemu_launch_start
        self.start.argtypes = [ctypes.POINTER(Spec), ctypes.c_uint]
        self.start.restype = ctypes.c_void_p
        self.wait = library.kwemu_launch_wait
        self.wait.argtypes = [ctypes.c_void_p, ctypes.c_double]
        self.wait.restype = ctypes.c_int
        self.abandon = library.kwemu_launch_abandon
        self.abandon.argtypes = [ctypes.c_void_p]
        self.abandon.restype = None
        self.outcome = library.kwemu_launch_outcome
        self.outcome.argtypes = [ctypes.c_void_p]
        self.outcome.restype = ctypes.POINTER(Outcome)
        self.free = library.kwemu_launch_free
        self.free.argtypes = [ctypes.c_void_p]
        self.free.restype = None
        self._declare_trace(library)
        self._layout = library.kwemu_module_layout
        self._layout.argtypes = [ctypes.c_void_p, ctypes.POINTER(ModuleLayout)]
        self._layout.restype = ctypes.c_int
        self._demangle = library.kwemu_demangle
        self._demangle.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
        self._demangle.restype = ctypes.c_int

    def _declare_trace(self, library: ctypes.CDLL) -> None:
        pointer, number = ctypes.c_void_p, ctypes.c_uint
        self.trace_new = library.kwemu_trace_new
        self.trace_new.argtypes, self.trace_new.restype = [pointer], pointer
        self.trace_layout = library.kwemu_trace_layout
        self.trace_layout.argtypes = [pointer, pointer, ctypes.c_uint64]
        self.trace_layout.restype = None
        self.trace_workers = library.kwemu_trace_workers
        self.trace_workers.argtypes, self.trace_workers.restype = [pointer], number
        self.trace_result = library.kwemu_trace_result
        self.trace_result.argtypes = [pointer, number, pointer]
        self.trace_result.restype = None
        self.trace_sharing = library.kwemu_trace_sharing
        self.trace_sharing.argtypes = [pointer, number, pointer]
        self.trace_sharing.restype = None
        self.trace_unique_sectors = library.kwemu_trace_unique_sectors
        self.trace_unique_sectors.argtypes = [pointer, number]
        self.trace_unique_sectors.restype = ctypes.c_uint64
        self.trace_free = library.kwemu_trace_free
        self.trace_free.argtypes, self.trace_free.restype = [pointer], None

    def layout(self, inside: int) -> ModuleLayout:
        """Return the layout of the loaded module that holds an address."""
        layout = ModuleLayout()
        if not self._layout(inside, ctypes.byref(layout)):
            raise RuntimeError("a loaded kernel module cannot be found in memory")
        return layout

    def demangle(self, name: bytes) -> str:
        """Return the readable form of a type's mangled name."""
        buffer = ctypes.create_string_buffer(4096)
        if not self._demangle(name, buffer, len(buffer)):
            return name.decode()
        return buffer.value.decode()


_lock = threading.Lock()
_runtime: Runtime | None = None


def load_runtime(find: Callable[[], Path]) -> Runtime:
    """Return the process's runtime, loading the one that ``find`` names if none is.

    There is one a process, whichever compiler made it: a module's calls go to the first
    that was loaded, and so must the launches.
    """
    global _runtime
    with _lock:
        if _runtime is None:
            _runtime = Runtime(find())
        return _runtime
