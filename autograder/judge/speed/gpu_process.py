"""The trusted process at the GPU: owns memory, inputs, peer and right answers.

No line of a learner's runs here. It answers the supervisor's requests one by one;
the clock is the supervisor's.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from autograder.exercise import Exercise, Speed
from autograder.judge.speed.bands import against_copy
from autograder.judge.speed.layout import scalars_of
from autograder.judge.speed.peers import run_turn
from autograder.judge.speed.returned import WrongOutputs
from autograder.judge.speed.samples import Made
from autograder.judge.speed.workload import NoRoom, Workload, output_bytes
from autograder.worker import device_memory, system
from autograder.worker.tensors import dtype_name
from autograder.worker.wire import Header, read_message, write_message
from kernelwright.measure.datasheet import Sheet, family_of, find_sheet


class Trusted:
    """Answers requests; one exercise a process."""

    def __init__(self) -> None:
        self._workload: Workload | None = None
        self._made: list[Made] = []

    def answer(self, request: Header) -> Header:
        """Answer one request."""
        try:
            operation: Callable[[Header], Header]
            operation = getattr(self, f"_on_{request['op']}")
            return {"ok": True, **operation(request)}
        except WrongOutputs as error:
            return {"ok": False, "kind": "outputs", "message": str(error)}
        except NoRoom as error:
            return {"ok": False, "kind": "room", "message": str(error)}
        except device_memory.DriverError as error:
            return {"ok": False, "kind": "driver", "message": str(error)}
        except torch.OutOfMemoryError as error:
            return {
                "ok": False,
                "kind": "memory",
                "message": str(error),
                "free": free_memory(),
            }
        except Exception:  # told to the supervisor, who makes an infrastructure error
            return {"ok": False, "kind": "bug", "message": traceback.format_exc()}

    @property
    def workload(self) -> Workload:
        """The workload that ``setup`` built."""
        assert self._workload is not None, "setup comes first"
        return self._workload

    def _on_setup(self, request: Header) -> Header:
        exercise = find_exercise(request["exercise"], request.get("where"))
        assert exercise.speed is not None
        facts = torch.cuda.get_device_properties(0)
        sheet = find_sheet(facts.name)
        workload = Workload.build(
            exercise,
            request["seed"],
            target_s=request["target_s"],
            by_copy=against_copy(exercise.speed, sheet is not None),
            part=request["part"],
        )
        self._workload = workload
        launch = workload.problem.launch
        on_kernel = launch is not None
        self._made = workload.made_here() if on_kernel else []
        # Compile, warm and take the memory that checking needs, before anyone waits.
        workload.seal(self._made, 0)
        workload.draws.expected(workload.problem)
        for _ in range(3):
            run_turn(workload.work)
        return {
            "name": facts.name,
            "family": family_of((facts.major, facts.minor)),
            "known": sheet is not None,
            "peak_gbps": sheet.memory_gbps if sheet else None,
            "copy_gbps": workload.copy_gbps,
            "calls": workload.calls,
            "cold": workload.layout.stride * workload.calls
            > 4 * int(facts.L2_cache_size),
            "bytes_moved": exercise.speed.bytes_moved(exercise.speed.case),
            "flops": operations(exercise.speed),
            "peak_tflops": peak_tflops(exercise.speed, sheet),
            "handle": workload.handle.hex(),
            "layout": workload.layout.to_json(),
            "outputs": []
            if on_kernel
            else [
                {"shape": list(output.shape), "dtype": dtype_name(output.dtype)}
                for output in workload.problem.outputs.values()
            ],
            "launch": {
                "grid": list(launch.grid),
                "block": list(launch.block),
                "shared": launch.shared,
            }
            if launch is not None
            else None,
            "returned_bytes": 0 if on_kernel else output_bytes(workload.problem),
            "free": free_memory(),
            "on_device": workload.draws.on_device,
            "scalars": workload.constant_scalars(),
        }

    def _on_peer(self, request: Header) -> Header:
        return {"events_s": run_turn(self.workload.work)}

    def _on_wake(self, request: Header) -> Header:
        run_turn(self.workload.wake)
        return {}

    def _on_scalars(self, request: Header) -> Header:
        draws, turn = self.workload.draws, request["turn"]
        return {
            "scalars": [
                scalars_of(draws.problem(turn, call))
                for call in range(self.workload.calls)
            ]
        }

    def _on_refresh(self, request: Header) -> Header:
        self.workload.refresh(request["turn"])
        return {"free": free_memory()}

    def _on_seal(self, request: Header) -> Header:
        if request["told"] is not None:
            self._made = self.workload.made_there(request["told"])
        self.workload.seal(self._made, request["key"])
        return {}

    def _on_check(self, request: Header) -> Header:
        found = self.workload.check(request["turn"], request["calls"], request["whole"])
        return {"wrong": found}


def operations(speed: Speed) -> int | None:
    """Return the operations of one call, where the exercise counts them."""
    return speed.flops(speed.case) if speed.flops is not None else None


def peak_tflops(speed: Speed, sheet: Sheet | None) -> float | None:
    """Return the data sheet's peak of the units that the exercise may use."""
    if sheet is None:
        return None
    return sheet.half_tflops if speed.unit == "half" else sheet.fp32_tflops


def free_memory() -> int:
    """Return the bytes that are free on the GPU, this process's spare ones too."""
    kept = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    return int(torch.cuda.mem_get_info()[0]) + kept


def find_exercise(name: str, where: str | None) -> Exercise:
    """Return an exercise of the course, or of the file ``where``."""
    if where is None:
        from autograder.exercises import all_exercises

        return all_exercises()[name]
    spec = importlib.util.spec_from_file_location(Path(where).stem, where)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    found: dict[str, Any] = {one.id: one for one in module.EXERCISES}
    exercise = found[name]
    assert isinstance(exercise, Exercise)
    return exercise


def main(request_fd: int, reply_fd: int) -> None:
    """Answer until the supervisor closes its end."""
    warnings.simplefilter("ignore")
    system.set_dumpable(False)
    trusted = Trusted()
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            header, _ = read_message(request_fd)
            write_message(reply_fd, trusted.answer(header))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
