"""CUDA C++ from Python, the same source on a GPU and on the CPU's emulator."""

from kernelwright.cuda.backends import Backend, backend
from kernelwright.cuda.kernel import Kernel, Launcher
from kernelwright.cuda.module import Module, compile, kernels
from kernelwright.cuda.nvrtc import Resources
from kernelwright.cuda.signature import Parameter, Signature

__all__ = [
    "Backend",
    "Kernel",
    "Launcher",
    "Module",
    "Parameter",
    "Resources",
    "Signature",
    "backend",
    "compile",
    "kernels",
]
