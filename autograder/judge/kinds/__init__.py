"""What differs between the kinds of answers, each kind behind one interface."""

from __future__ import annotations

from autograder.exercise import Exercise
from autograder.judge.kinds.circuit import Circuit
from autograder.judge.kinds.cpp import CppFunction
from autograder.judge.kinds.cuda import CudaKernel
from autograder.judge.kinds.cuda_printer import CudaPrinter
from autograder.judge.kinds.kind import Kind
from autograder.judge.kinds.python import CountedFunction, PythonFunction
from autograder.judge.kinds.ranks import Ranks
from autograder.judge.kinds.triton import TritonFunction


def kind_of(exercise: Exercise) -> Kind:
    """Choose the kind from what an exercise declares."""
    if exercise.entry == "kernel":
        return CudaKernel()
    if exercise.language == "cpp":
        return CppFunction()
    if exercise.entry == "ranks":
        return Ranks()
    if exercise.entry == "circuit":
        return Circuit()
    # The prelude is the course's: it says what the answers are made of.
    if "import triton" in exercise.prelude:
        return TritonFunction()
    if "autograder.worker.adapters.decoding" in exercise.prelude:
        return CountedFunction()
    printed = "kernelwright.expression" in exercise.prelude
    return CudaPrinter() if printed else PythonFunction()


__all__ = ["Kind", "kind_of"]
