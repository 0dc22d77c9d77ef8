"""A function in C++ for the host: compiled, and called with tensors on the CPU."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

from autograder.judge.kinds.kind import Kind
from autograder.judge.results import Gate
from autograder.judge.structure import check_used
from autograder.languages import code_alone

if TYPE_CHECKING:
    from autograder.judge.run import Run
    from autograder.judge.traces import Trace
    from autograder.judge.trial import Deadlines


class CppFunction(Kind):
    """It writes its outputs to tensors that it is given, as a kernel does."""

    title: ClassVar[str] = "C++"
    fills: ClassVar[bool] = True

    def device(self, here: str) -> str:
        """Return the CPU, also next to a GPU."""
        return "cpu"

    def where(self, device: str) -> str:
        """Say that nothing stood for anything else."""
        return "CPU"

    def limits(self, deadlines: Deadlines) -> dict[str, float]:
        """Set none: the compiler is a process of its own."""
        return {}

    def structure(self, run: Run, trace: Trace | None) -> Gate:
        """Read the names that it uses."""
        code = code_alone(run.cells[-1].source, "cpp")
        return check_used(run, set(re.findall(r"[A-Za-z_]\w*", code)))

    def unmeasured(self, device: str) -> str:
        """Say that no peer stands beside it."""
        return "the speed of a host function is not measured yet"
