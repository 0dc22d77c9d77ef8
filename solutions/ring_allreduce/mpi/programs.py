"""Build the C++ ring and run both: ``python -m solutions.ring_allreduce.mpi.programs``.

    python -m solutions.ring_allreduce.mpi.programs 4 1000003 sendrecv

MPICH's wheel holds mpi.h, its library and mpiexec; where it is not installed, mpicxx
and mpiexec of the system are taken.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, files
from importlib.util import find_spec
from pathlib import Path

_HERE = Path(__file__).parent
_MEND = "Mend: pip install -e .[mpi], which brings mpi4py and MPICH as wheels."


def installed() -> bool:
    """Say whether both programs can be built and run here."""
    try:
        return bool(find_spec("mpi4py") and launcher() and compiler())
    except FileNotFoundError:
        return False


def launcher() -> str:
    """Return where ``mpiexec`` is.

    Raises:
        FileNotFoundError: nowhere.
    """
    found = _of_the_wheel("mpiexec") or shutil.which("mpiexec")
    if not found:
        raise FileNotFoundError(f"mpiexec is not installed. {_MEND}")
    return str(found)


def compiler() -> list[str]:
    """Return the C++ compiler and what finds MPI's header and library.

    Raises:
        FileNotFoundError: there is none.
    """
    header, library = _of_the_wheel("mpi.h"), _of_the_wheel("libmpi.so")
    plain = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if header and library and plain:
        folder = library.parent
        return [
            plain, f"-I{header.parent}", str(library), f"-Wl,-rpath,{folder}",
        ]  # fmt: skip
    wrapper = shutil.which("mpicxx")
    if not wrapper:
        raise FileNotFoundError(f"No C++ compiler for MPI is installed. {_MEND}")
    return [wrapper]


def build(folder: Path) -> Path:
    """Compile ``ring.cpp``; return the program.

    Raises:
        RuntimeError: it does not compile; says why.
    """
    program = folder / "ring"
    command, *flags = compiler()
    # Sums stay in the order that the text says: -O2 alone keeps it.
    told = [command, "-std=c++17", "-O2", "-Wall", str(_HERE / "ring.cpp")]
    done = subprocess.run(
        [*told, *flags, "-o", str(program)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"ring.cpp does not compile:\n{done.stderr}")
    return program


def run(
    program: list[str], ranks: int, count: int, way: str, out: Path, limit_s: float = 60
) -> tuple[str, bytes]:
    """Run a ring on some ranks; return what it printed and rank 0's sums.

    Raises:
        TimeoutError: it did not end within the limit: a deadlock.
        RuntimeError: it failed; says what it printed.
    """
    told = [launcher(), "-n", str(ranks), *program, str(count), way, str(out)]
    root = str(_HERE.parents[2])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    with subprocess.Popen(
        told, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "PYTHONPATH": path},
    ) as running:  # fmt: skip
        try:
            printed, _ = running.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            running.terminate()  # mpiexec ends its ranks
            running.communicate()
            raise TimeoutError(
                f"{ranks} ranks, {count} numbers, {way}: no end within {limit_s} s, "
                "as each rank waits for another."
            ) from None
    if running.returncode:
        raise RuntimeError(f"{' '.join(told)} failed:\n{printed}")
    return printed, out.read_bytes()


PYTHON = [sys.executable, "-m", "solutions.ring_allreduce.mpi.ring"]


def main(told: list[str]) -> int:
    """Run both programs; return 0 if they give the same bits."""
    ranks, count = int(told[0]), int(told[1])
    way = told[2] if len(told) > 2 else "sendrecv"
    with tempfile.TemporaryDirectory() as folder:
        sums = []
        for program in (PYTHON, [str(build(Path(folder)))]):
            printed, data = run(program, ranks, count, way, Path(folder) / "out.f32")
            print(printed, end="")
            sums.append(data)
    print("the same bits" if sums[0] == sums[1] else "NOT the same bits")
    return sums[0] != sums[1]


def _of_the_wheel(name: str) -> Path | None:
    """Return where a file of the mpich wheel is installed."""
    try:
        found = [each for each in files("mpich") or () if each.name == name]
    except PackageNotFoundError:
        return None
    places = [Path(str(each.locate())).resolve() for each in found]
    return next((place for place in places if place.exists()), None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
