"""Where the CUDA headers and tools are: the pip packages first, then a toolkit."""

from __future__ import annotations

import importlib.util
import os
import shutil
from functools import cache
from pathlib import Path

from kernelwright.emulator import include_dir
from kernelwright.errors import ToolchainError


@cache
def include_folders() -> tuple[str, ...]:
    """Return the include path for NVRTC: ours, CUDA's, and libcu++'s.

    CUDA 13's wheels share ``nvidia/cu13/include``; CUDA 12's have a folder each; an
    installed toolkit has it all in one.
    """
    return (str(include_dir()), *cuda_include_folders())


@cache
def cuda_include_folders() -> tuple[str, ...]:
    """Return the folders that hold ``cuda_fp16.h``, ``mma.h`` and libcu++."""
    folders: list[Path] = []
    for root in [*_wheel_roots(), *_toolkit_roots()]:
        for folder in (root / "include", root / "include" / "cccl"):
            if folder.is_dir():
                folders.append(folder)
        if _holds(folders, "cuda_fp16.h") and _holds(folders, "crt/mma.h"):
            break
    if not _holds(folders, "cuda_fp16.h"):
        raise ToolchainError(
            "The CUDA headers were not found. Wanted: the packages "
            "nvidia-cuda-runtime and nvidia-cuda-cccl, or CUDA_HOME naming a "
            "toolkit. Mend: run `make setup`."
        )
    return tuple(dict.fromkeys(map(str, folders)))


def _holds(folders: list[Path], header: str) -> bool:
    return any((folder / header).exists() for folder in folders)


def _wheel_roots() -> list[Path]:
    spec = importlib.util.find_spec("nvidia")
    locations = list(spec.submodule_search_locations or []) if spec else []
    names = ("cu13", "cuda_runtime", "cuda_nvcc", "cuda_cccl")
    return [Path(base) / n for base in locations for n in names]


def _toolkit_roots() -> list[Path]:
    chosen = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    nvcc = shutil.which("nvcc")
    roots = [Path(chosen)] if chosen else []
    if nvcc:
        roots.append(Path(nvcc).resolve().parent.parent)
    return [*roots, Path("/usr/local/cuda")]


@cache
def disassembler() -> str:
    """Return the path of ``cuobjdump``: the toolkit's, or the one Triton carries."""
    found = shutil.which("cuobjdump")
    if found:
        return found
    spec = importlib.util.find_spec("triton")
    for base in list(spec.submodule_search_locations or []) if spec else []:
        tool = Path(base) / "backends" / "nvidia" / "bin" / "cuobjdump"
        if tool.exists():
            return str(tool)
    for root in _toolkit_roots():
        if (root / "bin" / "cuobjdump").exists():
            return str(root / "bin" / "cuobjdump")
    raise ToolchainError(
        "cuobjdump was not found. Wanted: Triton's package, which carries it, or a "
        "CUDA toolkit on the PATH. Mend: pip install triton."
    )
