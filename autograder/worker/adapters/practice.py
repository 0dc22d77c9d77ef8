"""Between the wire and a timer: numbers become a practice GPU, answers tensors.

The exercises of the profiling chapter are functions that take a GPU and a launch.
What crosses the wire are durations and sizes, drawn by the supervisor, and the numbers
that the answer found; the right ones follow from what was drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

from autograder.worker.entry import WrongReturn
from kernelwright.measure.practice import PracticeGPU, PracticeTensor

Answer = Callable[..., Any]


def adapt_number(answer: Answer, work: torch.Tensor) -> torch.Tensor:
    """Call an answer that takes whole numbers and returns one number."""
    return _number(answer(*work.tolist()), _name(answer), torch.float64, work.device)


def adapt_timer(
    answer: Answer, cold: torch.Tensor, warm: torch.Tensor, warm_up: int, samples: int
) -> torch.Tensor:
    """Have one kernel timed; ``cold`` and ``warm`` say what each launch takes."""
    gpu = PracticeGPU()
    launch = gpu.kernel("kernel", cold.tolist(), warm.tolist(), compile_ms=9.0)
    found = answer(gpu, launch, gpu.flush, warm_up, samples)
    return _measured(gpu, _number(found, _name(answer), torch.float32, cold.device))


def adapt_comparison(
    answer: Answer,
    old: torch.Tensor,
    new: torch.Tensor,
    warm_fraction: float,
    warm_up: int,
    samples: int,
) -> torch.Tensor:
    """Have two kernels compared that read the same input."""
    gpu = PracticeGPU()
    first, second = (
        gpu.kernel(
            name,
            times.tolist(),
            (times * warm_fraction).tolist(),
            compile_ms=9.0,
        )
        for name, times in (("old", old), ("new", new))
    )
    found = answer(gpu, first, second, gpu.flush, warm_up, samples)
    return _measured(gpu, _number(found, _name(answer), torch.float32, old.device))


def adapt_memory(
    answer: Answer,
    sizes: torch.Tensor,
    lives: torch.Tensor,
    before: int,
    history: int,
    workspace: int,
    leak: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Have the memory measured of a call that allocates and frees by a script.

    Args:
        answer: the learner's function.
        sizes: bytes of each allocation, in order.
        lives: after how many further allocations each is freed; those that outlive
            the call make up its result.
        before: bytes in use beforehand.
        history: an earlier, higher peak; half of it the first call takes for a moment.
        workspace: bytes that the first call takes and keeps.
        leak: bytes that every call takes and keeps.
    """
    gpu = PracticeGPU()
    inputs = gpu.empty(before)
    earlier = gpu.empty(history)
    del earlier
    kept: list[PracticeTensor] = []
    script = list(zip(sizes.tolist(), lives.tolist(), strict=True))

    def fn() -> list[PracticeTensor]:
        if not kept:
            kept.append(gpu.empty(workspace))
            gpu.empty(history // 2)  # given back at once: it only tried something out
        if leak:
            kept.append(gpu.empty(leak))
        living: list[tuple[int, PracticeTensor]] = []
        for step, (size, life) in enumerate(script):
            living = [(end, held) for end, held in living if end > step]
            living.append((step + 1 + life, gpu.empty(size)))
        return [held for end, held in living if end > len(script)]

    found = answer(gpu, fn)
    assert inputs.nbytes == before  # in use until here
    name = _name(answer)
    if not isinstance(found, tuple | list) or len(found) != 2:
        raise WrongReturn(f"{name} returned {_shown(found)}; wanted (peak, kept).")
    peak, left = (_number(n, name, torch.int64, sizes.device) for n in found)
    return peak, left


class _RegionFailed(Exception):
    """What a region of the scripted program ends in."""


def adapt_profiler(
    answer: Answer,
    depths: torch.Tensor,
    names: torch.Tensor,
    work: torch.Tensor,
    fails: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Have a program of nested regions profiled.

    Args:
        answer: the learner's class.
        depths: how deep each run of a region lies, in the order of entry.
        names: which name each has.
        work: ms of work on the device at the beginning and at the end of each.
        fails: the run that ends in an exception, which its caller catches; -1: none.
    """
    gpu = PracticeGPU()
    program = _Program(gpu, depths.tolist(), names.tolist(), work.tolist(), fails)
    # Work ahead of the program: the device never waits for the CPU.
    gpu.kernel("earlier", 5.0)()
    prof = answer(gpu)
    program.run(prof)
    found = prof.summary()
    if not isinstance(found, dict):
        raise WrongReturn(f"summary() returned {_shown(found)}; wanted a dict.")
    paths = list(dict.fromkeys(program.paths))
    for path in paths:
        if path not in found:
            keys = ", ".join(map(repr, list(found)[:8])) or "nothing"
            mend = ""
            if path.rpartition("/")[2] in found and "/" in path:
                mend = " A path begins with the names of the regions around it."
            elif fails >= 0:
                mend = " Does one that raises still close (try, finally)?"
            raise WrongReturn(
                f"summary() has no {path!r}, a region that was run. It has: {keys}."
                f"{mend}"
            )
    if len(found) > len(paths):
        extra = next(key for key in found if key not in paths)
        raise WrongReturn(f"summary() has {extra!r}, a region that was never run.")
    columns: list[list[torch.Tensor]] = [[], [], []]
    for path in paths:
        row = found[path]
        if not isinstance(row, tuple | list) or len(row) != 3:
            raise WrongReturn(
                f"summary()[{path!r}] is {_shown(row)}; wanted (calls, total ms, own "
                "ms)."
            )
        types = (torch.int64, torch.float32, torch.float32)
        for column, value, dtype in zip(columns, row, types, strict=True):
            column.append(_number(value, "summary", dtype, depths.device))
    calls, total, own = (torch.stack(column) for column in columns)
    return calls, total, own


class _Program:
    """A program whose regions, and the work in them, were drawn by the supervisor."""

    def __init__(
        self,
        gpu: PracticeGPU,
        depths: list[int],
        names: list[int],
        work: list[list[float]],
        fails: int,
    ) -> None:
        self.gpu, self.depths, self.work, self.fails = gpu, depths, work, fails
        self.names = [region_name(n) for n in names]
        self.paths: list[str] = []

    def run(self, prof: Any) -> None:
        """Run all regions in a profiler."""
        at = 0
        while at < len(self.depths):
            at = self._region(prof, at, "")

    def _region(self, prof: Any, at: int, parent: str) -> int:
        """Run one region and those inside; return the number of the next."""
        path = parent + self.names[at]
        self.paths.append(path)
        after = at + 1
        with suppress(_RegionFailed):
            with prof.record(self.names[at]):
                self.gpu.kernel("work", self.work[at][0])()
                while after < len(self.depths) and self.depths[after] > self.depths[at]:
                    after = self._region(prof, after, path + "/")
                self.gpu.kernel("work", self.work[at][1])()
                if at == self.fails:
                    raise _RegionFailed
            if at == self.fails:
                raise WrongReturn(
                    "record() swallows an exception that the region raised: record "
                    "the stop event in a finally block, and let it pass."
                )
        return after


def region_name(number: int) -> str:
    """Return the name that stands for a number in a script."""
    # One begins as another does: what lies inside is told by the slash alone.
    names = ("step", "forward", "forward_again", "backward", "mlp", "loss")
    return names[number % len(names)]


def _number(
    value: Any,
    name: str,
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
) -> torch.Tensor:
    """Turn a number that an answer returned into a tensor."""
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WrongReturn(f"{name} returned {_shown(value)}; wanted a number.")
    if dtype is torch.int64:
        if value != int(value):
            raise WrongReturn(f"{name} returned {value}; wanted a whole number.")
        value = int(value)
    return torch.tensor(value, dtype=dtype, device=device)


def _measured(gpu: PracticeGPU, number: torch.Tensor) -> torch.Tensor:
    """Return a number that an answer measured; refuse one that no clock of gpu gave."""
    if not any(done.kind in ("event", "read") for done in gpu.log):
        raise WrongReturn(
            f"the number returned is {number.item():.6g}, and no event was recorded on "
            "gpu. The computer's own clock, time.perf_counter(), knows nothing of what "
            "the GPU does: record two events of gpu.Event(enable_timing=True)."
        )
    return number


def _name(answer: Answer) -> str:
    return str(getattr(answer, "__name__", "the function"))


def _shown(value: Any) -> str:
    if value is None:
        return "None"
    return f"a {type(value).__name__}"
