"""Fresh inputs on the device, and the right answer to them, from a seed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch

from autograder.exercise import Exercise, Outputs, Problem

_KEPT = 2


def seed_for(*parts: object) -> int:
    """Derive a generator's seed from the trial's seed and what it is for."""
    text = "/".join(str(part) for part in parts).encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "little") >> 1


class Draws:
    """Draws the speed case's problems, each anew from turn and call.

    The same turn and call give the same problem again: that is how the right answer
    is found later without keeping, or trusting, what the learner's process could
    write to.

    Args:
        exercise: has a ``speed``.
        seed: the trial's.
        device: where to draw.
    """

    def __init__(self, exercise: Exercise, seed: int, device: str = "cuda") -> None:
        assert exercise.speed is not None
        self._exercise, self._case = exercise, exercise.speed.case
        self._seed, self._device = seed, device
        self._kept: list[Problem] = []
        self.on_device = self._draws_on_device()
        if not self.on_device:
            self._kept = [self._draw_on_cpu(i) for i in range(_KEPT)]

    def problem(self, turn: int, call: int) -> Problem:
        """Return the problem of one call, its tensors on the device."""
        seed = seed_for(self._seed, turn, call)
        if self.on_device:
            return self._draw(seed)
        # Drawing on the CPU takes seconds. Two draws were kept; rolling one along
        # its elements makes it new to anything that remembers the last one.
        kept = self._kept[call % len(self._kept)]
        arguments = {
            name: _rolled(value, seed) if isinstance(value, torch.Tensor) else value
            for name, value in kept.arguments.items()
        }
        return Problem(arguments, kept.outputs, kept.launch)

    def expected(self, problem: Problem) -> tuple[Outputs, Outputs]:
        """Return the reference's outputs and the scale of their tolerance."""
        known = {k: v for k, v in problem.arguments.items() if v is not None}
        try:
            with torch.device(self._device):
                return self._evaluate(known)
        except Exception:  # a reference may be written for the CPU alone
            on_cpu = {
                name: value.cpu() if isinstance(value, torch.Tensor) else value
                for name, value in known.items()
            }
            want, scale = self._evaluate(on_cpu)
            return self._moved(want), self._moved(scale)

    def _evaluate(
        self, arguments: Mapping[str, torch.Tensor | int | float]
    ) -> tuple[Outputs, Outputs]:
        want = self._exercise.reference(arguments)
        scale = self._exercise.tolerance.scale
        # What has no scale of its own is held against its values.
        scales = want if scale is None else {**want, **scale(arguments)}
        if any(value.device.type != self._device for value in want.values()):
            return self._moved(want), self._moved(scales)
        return want, scales

    def _moved(self, outputs: Outputs) -> Outputs:
        return {name: value.to(self._device) for name, value in outputs.items()}

    def _draws_on_device(self) -> bool:
        """Try once whether the exercise's problem can be drawn on the device."""
        try:
            drawn = self._draw(0)
        except Exception:  # whatever an exercise's own code says to a new device
            return False
        return all(
            value.device.type == torch.device(self._device).type
            for value in drawn.arguments.values()
            if isinstance(value, torch.Tensor)
        )

    def _draw(self, seed: int) -> Problem:
        generator = torch.Generator(self._device).manual_seed(seed)
        with torch.device(self._device):
            return self._exercise.problem(self._case, generator)

    def _draw_on_cpu(self, number: int) -> Problem:
        generator = torch.Generator().manual_seed(seed_for(self._seed, "cpu", number))
        drawn = self._exercise.problem(self._case, generator)
        arguments = {
            name: value.to(self._device) if isinstance(value, torch.Tensor) else value
            for name, value in drawn.arguments.items()
        }
        return Problem(arguments, drawn.outputs, drawn.launch)


def _rolled(tensor: torch.Tensor, seed: int) -> torch.Tensor:
    """Roll a tensor along its elements by an amount that follows from the seed."""
    if tensor.numel() < 2:
        return tensor
    by = 1 + seed % (tensor.numel() - 1)
    rolled = torch.empty_strided(
        tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
    )
    return rolled.copy_(tensor.reshape(-1).roll(by).reshape(tensor.shape))
