"""The worker's loop: take a request, run the learner's code, send back bytes.

Nothing that leaves here is believed: the supervisor fixes shapes and dtypes, holds
the reference, and reads the bytes for what they are.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable

from autograder.worker.blame import find_writer
from autograder.worker.cells import Namespace
from autograder.worker.entries import ENTRIES
from autograder.worker.entry import Given
from autograder.worker.overtime import ended_after
from autograder.worker.run import run_case
from autograder.worker.troubles import Trouble, describe
from autograder.worker.wire import Header, read_message, write_message
from kernelwright.errors import ToolchainError

Reply = tuple[Header, list[bytes]]


def serve(request: int, reply: int) -> None:
    """Answer requests until the supervisor closes its end."""
    warnings.simplefilter("ignore")
    # Printing must not be lost in a buffer when the process is ended.
    sys.stdout = open(1, "w", buffering=1, errors="replace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="replace", closefd=False)  # noqa: SIM115
    _poison_empty()
    namespace = Namespace(os.getcwd())
    while True:
        try:
            header, blobs = read_message(request)
        except EOFError:
            return

        def overtime(trouble: Trouble) -> None:
            write_message(reply, {"ok": False, **trouble.to_json()}, [])

        seconds = header.get("busy_s", 0.0), header.get("wall_s", 0.0)
        with ended_after(*seconds, namespace.files, overtime):
            answer, data = _answer(namespace, header, blobs)
        write_message(reply, answer, data)


def _poison_empty() -> None:
    """Have ``torch.empty`` hand out NaN: memory that happens to be 0 hides mistakes."""
    import torch

    # The public function imports torch's compiler, 0.9 s, to say the same to it.
    torch._C._set_deterministic_algorithms(True, warn_only=True)
    setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)  # noqa: B010


def _answer(namespace: Namespace, header: Header, blobs: list[bytearray]) -> Reply:
    try:
        operation = _OPERATIONS[header["op"]]
        return operation(namespace, header, blobs)
    except BaseException as error:
        return {"ok": False, **describe(error, namespace.files).to_json()}, []


def _prepare(namespace: Namespace, header: Header, blobs: list[bytearray]) -> Reply:
    os.environ.update(header.get("environ", {}))
    if lacking := ENTRIES[header["entry"]].prepare():
        raise ToolchainError(lacking)
    namespace.load(header["prelude"], header["cells"])
    namespace.answer(header["name"], header["entry"])
    return {"ok": True}, []


def _run(namespace: Namespace, header: Header, blobs: list[bytearray]) -> Reply:
    os.environ["KERNELWRIGHT_DEADLINE_S"] = str(header["deadline_s"])
    return run_case(namespace, header, blobs)


def _trace(namespace: Namespace, header: Header, blobs: list[bytearray]) -> Reply:
    os.environ["KERNELWRIGHT_DEADLINE_S"] = str(header["deadline_s"])
    # Of blocks that run side by side two may store at once, and neither see the other:
    # one after another they give the same verdict every time.
    threads = os.environ.get("KERNELWRIGHT_THREADS")
    os.environ["KERNELWRIGHT_THREADS"] = "1"
    try:
        answer = namespace.answer(header["name"], header["entry"])
        given = Given.place(header, blobs, namespace.files)
        return ENTRIES[header["entry"]].trace(answer, given, header), []
    finally:
        os.environ.pop("KERNELWRIGHT_THREADS")
        if threads is not None:
            os.environ["KERNELWRIGHT_THREADS"] = threads


def _sass(namespace: Namespace, header: Header, blobs: list[bytearray]) -> Reply:
    from kernelwright.cuda.nvrtc import compile_cubin

    # The real compiler only: nothing of the source is run, so the text is its own.
    name = header["name"]
    cubin = compile_cubin(
        header["source"], filename="cell.cu", kernels=(name,), arch=header["arch"]
    )
    # That the compiler takes it may be all that is asked.
    code = cubin.sass(name) if header.get("read", True) else ""
    return {"ok": True}, [code.encode()]


def _kernels(namespace: Namespace, header: Header, blobs: list[bytearray]) -> Reply:
    from autograder.worker.real_triton import compile_kernels

    return compile_kernels(header), []


def _cells(namespace: Namespace, header: Header, blobs: list[bytearray]) -> Reply:
    from autograder.worker.circuit import cells_of

    answer = namespace.answer(header["name"], header["entry"])
    given = Given.place(header, blobs, namespace.files)
    return {"ok": True, "cells": cells_of(answer, given, header)}, []


def _blame(namespace: Namespace, header: Header, blobs: list[bytearray]) -> Reply:
    os.environ["KERNELWRIGHT_DEADLINE_S"] = str(header["deadline_s"])
    return {"ok": True, "writer": find_writer(header, blobs)}, []


def _timed(namespace: Namespace, header: Header, blobs: list[bytearray]) -> Reply:
    from autograder.worker.timed import timed

    return timed(namespace, header), []


_OPERATIONS: dict[str, Callable[[Namespace, Header, list[bytearray]], Reply]] = {
    "prepare": _prepare,
    "run": _run,
    "trace": _trace,
    "sass": _sass,
    "kernels": _kernels,
    "cells": _cells,
    "blame": _blame,
    "timed": _timed,
}
