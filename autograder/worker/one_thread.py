"""An answer runs in one thread: what is watched while it is called is that thread's.

For a learner who has the library do the exercise beside it; it is no wall against one
who changes the grader.
"""

from __future__ import annotations

import _thread
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import kernelwright
from autograder.worker.entry import WrongReturn

# What starts a thread, by the names that different Pythons have for it.
_STARTERS = {
    _thread: ("start_new_thread", "start_new", "start_joinable_thread"),
    threading: ("_start_new_thread", "_start_joinable_thread"),
}
# To compile takes threads, on the grader's behalf and on an answer's.
_MAY = tuple(str(Path(each.__file__ or "").parent) for each in (kernelwright, torch))

start_thread: Callable[..., int] = _thread.start_new_thread
"""What starts the grader's own."""


def refuse_threads(folder: Path) -> None:
    """From here on refuse a thread that code of this folder starts."""
    for module, names in _STARTERS.items():
        for name in names:
            if start := getattr(module, name, None):
                setattr(module, name, partial(_start, start, str(folder)))


def _start(
    start: Callable[..., Any], folder: str, *arguments: Any, **named: Any
) -> Any:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not frame.f_code.co_filename.startswith(_MAY):
        if frame.f_code.co_filename.startswith(folder):
            raise WrongReturn(
                "an answer starts no thread of its own: what runs in one is not seen, "
                "and a kernel has threads enough."
            )
        frame = frame.f_back
    return start(*arguments, **named)
