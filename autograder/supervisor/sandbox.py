"""The sandbox ladder: what this machine offers to hold a learner's code.

``bubblewrap`` gives workers a file system in which solutions, tests and exercises do
not exist, no network, and process numbers of their own. ``landlock`` refuses to open
those files, in the same tree. ``plain`` holds only by limits and deadlines: good for
checking one's own work, and labelled *not trusted*.
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from autograder.worker import landlock
from kernelwright.cache import cache_root

TierName = Literal["bubblewrap", "landlock", "plain"]

PACKAGES = Path(__file__).resolve().parents[2]
# What programs need of /etc; the rest of it is nobody's business.
_ETC = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime")
_TMP_BYTES = 4 << 30
_TOOLCHAIN = ("bin", "lib", "lib64", "libexec", "include", "share")
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix", "/gnu")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
# Facts about the machine that libraries ask for; nobody else's processes.
_PROC = (
    "cpuinfo", "meminfo", "stat", "filesystems", "version", "devices", "modules",
    "driver", "sys/vm", "sys/kernel",
)  # fmt: skip


@dataclass(frozen=True)
class Tier:
    """One rung of the ladder, as it was found on this machine.

    Args:
        name: the rung.
        detail: what it holds and what it does not, for the report.
    """

    name: TierName
    detail: str

    @property
    def trusted(self) -> bool:
        """Whether a grade from it may be relied upon."""
        return self.name != "plain"

    @property
    def words(self) -> str:
        """Say it in a line."""
        label = "" if self.trusted else " — not trusted"
        return f"{self.name}{label}: {self.detail}"


@cache
def detect() -> Tier:
    """Find the best rung that works here; ``KERNELWRIGHT_SANDBOX`` names another."""
    chosen = os.environ.get("KERNELWRIGHT_SANDBOX", "").strip().lower()
    rungs: tuple[TierName, ...] = ("bubblewrap", "landlock", "plain")
    if chosen and chosen not in rungs:
        raise ValueError(
            f"KERNELWRIGHT_SANDBOX is {chosen!r}; wanted one of {', '.join(rungs)}."
        )
    for rung in rungs:
        if chosen in ("", rung) and (tier := _try(rung)) is not None:
            return tier
    raise ValueError(f"KERNELWRIGHT_SANDBOX={chosen}: this machine does not allow it.")


def command(tier: Tier, argv: list[str]) -> list[str]:
    """Return the command line that runs a trusted server within the tier."""
    return [*_bubblewrap(), *argv] if tier.name == "bubblewrap" else argv


def readable() -> tuple[str, ...]:
    """List what a worker may read under Landlock; folders with secrets are split."""
    found: list[str] = []
    hidden = _hidden()

    def add(path: Path) -> None:
        if any(path in secret.parents for secret in hidden):
            for child in sorted(path.iterdir()):
                if child not in hidden:
                    add(child)
        else:
            found.append(str(path))

    for path in _visible():
        add(path)
    return (*found, *(f"/proc/{name}" for name in _PROC), "/sys")


def devices(gpu: bool) -> tuple[str, ...]:
    """List the device files that a worker may open."""
    nvidia = [*glob.glob("/dev/nvidia*"), *glob.glob("/dev/dxg")] if gpu else []
    return (*_DEVICES, *nvidia)


def _try(rung: TierName) -> Tier | None:
    if rung == "plain":
        return Tier("plain", "limits and deadlines only; for checking your own work")
    if rung == "landlock":
        version = landlock.version()
        if version < 1:
            return None
        network = "no network, " if version >= 4 else ""
        return Tier(
            "landlock",
            f"{network}no files but the system's and the course's tools, nobody "
            f"else's processes (version {version})",
        )
    if shutil.which("bwrap") is None:
        return None
    trial = [*_bubblewrap(), sys.executable, "-I", "-c", "pass"]
    try:
        subprocess.run(trial, check=True, capture_output=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return None
    inner = " and Landlock" if landlock.version() else ""
    return Tier(
        "bubblewrap",
        f"own process numbers, no network, read-only system without the course's "
        f"solutions, answers and tests{inner}",
    )


@cache
def _sizes() -> bool:
    """Whether this bubblewrap can bound a file system in memory (0.7 and newer)."""
    said = subprocess.run(["bwrap", "--help"], capture_output=True, text=True)
    return "--size" in said.stdout + said.stderr


def _bubblewrap() -> list[str]:
    argv = ["bwrap", "--unshare-pid", "--unshare-net", "--unshare-ipc"]
    argv += ["--unshare-uts", "--die-with-parent", "--hostname", "grader"]
    argv += ["--proc", "/proc", "--dev", "/dev", "--chdir", "/"]
    # Its pages are memory: a worker must not fill the machine's through files.
    argv += [*(["--size", str(_TMP_BYTES)] if _sizes() else []), "--tmpfs", "/tmp"]
    argv += ["--ro-bind", "/sys", "/sys"]
    for device in devices(gpu=True):
        if device not in _DEVICES:
            argv += ["--dev-bind", device, device]
    # From the root down: what stands deeper overrides what stands above it.
    steps = [(path, False) for path in _hidden()] + [(p, True) for p in _visible()]
    for path, shown in sorted(steps, key=lambda step: len(step[0].parts)):
        if shown and path.is_symlink():
            argv += ["--symlink", os.readlink(path), str(path)]
        elif shown:
            argv += ["--ro-bind", str(path), str(path)]
        elif any(path.is_relative_to(v) for v, show in steps if show):
            argv += ["--tmpfs", str(path)]
    return argv


@cache
def _hidden() -> tuple[Path, ...]:
    """List the folders that hold answers or what judges them."""
    places = {PACKAGES, *(Path(p).resolve() for p in sys.path if p)}
    names = ("solutions", "autograder")
    found = {p / name for p in places for name in names if (p / name).exists()}
    # In a checkout everything else of it goes too: history, tests, chapters.
    if (PACKAGES / "pyproject.toml").exists():
        found = {PACKAGES, *(p for p in found if not p.is_relative_to(PACKAGES))}
        found |= {p / n for p in places if p != PACKAGES for n in names}
    return tuple(sorted(p for p in found if p.exists()))


@cache
def _visible() -> tuple[Path, ...]:
    """List what a worker's interpreter, compiler and libraries are made of."""
    paths: list[Path] = [Path(p) for p in _SYSTEM]
    paths += [Path("/etc") / name for name in _ETC]
    paths += [Path(p) for p in (sys.prefix, sys.base_prefix, sys.exec_prefix)]
    paths += [Path(p) for p in sys.path if "-packages" in p]
    for name in ("CUDA_HOME", "CUDA_PATH"):
        paths += [Path(p) for p in (os.environ.get(name),) if p]
    paths += [Path(p) for p in os.environ.get("LD_LIBRARY_PATH", "").split(":") if p]
    compiler = shutil.which(os.environ.get("CXX", "g++").split()[0])
    if compiler:
        # A compiler of the user's own has its libraries beside its programs' folder.
        prefix = Path(compiler).resolve().parent.parent
        paths += [prefix / name for name in _TOOLCHAIN]
    paths += [
        PACKAGES / "kernelwright",
        PACKAGES / "autograder" / "__init__.py",
        PACKAGES / "autograder" / "worker",
        shared_cache(),
    ]
    return tuple(_unique(p for p in paths if p.is_absolute() and p.exists()))


def shared_cache() -> Path:
    """Return the cache that workers read and never write.

    It holds what the toolchain itself needs, and nothing else: the user's own cache
    holds compiled answers too.
    """
    root = cache_root().resolve() / "grader"
    root.mkdir(parents=True, exist_ok=True)
    return root


def _unique(paths: Iterable[Path]) -> list[Path]:
    """Drop what lies in another path of the list, unless a hidden one is between."""
    kept: list[Path] = []
    hidden = _hidden()
    for path in sorted(dict.fromkeys(paths), key=lambda p: len(p.parts)):
        above = [k for k in kept if path.is_relative_to(k) and not k.is_symlink()]
        shielded = any(
            path.is_relative_to(h) and not any(k.is_relative_to(h) for k in above)
            for h in hidden
        )
        if not above or shielded:
            kept.append(path)
    return kept
