"""What every test shares: which tests a machine can run, said aloud."""

from __future__ import annotations

import os
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

# Before torch is imported: its threads sleep while they wait for each other. To spin
# takes the time of whoever shares the cores, the next test process first of all.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch

from kernelwright.cuda.backends import gpu_present

# A machine that only grades or only runs kernels needs none of these packages, and
# what tests the book and the notebooks is then not even collected.
_NEEDED = {
    "jupytext": ["autograder/authoring/*"],
    "nbformat": ["autograder/authoring/*"],
    "playwright": ["book", "book/*", "kernelwright/draw/test_in_a_browser.py"],
}
_ABSENT = sorted(name for name in _NEEDED if find_spec(name) is None)
collect_ignore_glob = [pattern for name in _ABSENT for pattern in _NEEDED[name]]

_SHARES = 4


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a run take all tests of the families that are sampled."""
    parser.addoption("--full", action="store_true", help="run every sampled test")


def _takes_all(config: pytest.Config) -> bool:
    """Whether nothing is left out: it is so for what was asked for by name."""
    if hasattr(config, "workerinput"):  # a process of xdist, which sees no such thing
        return bool(config.workerinput["takes_all"])
    named = config.args_source is not pytest.Config.ArgsSource.TESTPATHS
    return bool(named or config.option.keyword or config.getoption("--full"))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a process of xdist what this one was asked for."""
    node.workerinput["takes_all"] = _takes_all(node.config)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Name what this machine cannot run, and what this run leaves out."""
    gpu = "present" if gpu_present() else "none; gpu tests skip"
    absent = [f"not collected without {n}: {', '.join(_NEEDED[n])}" for n in _ABSENT]
    part = f"part {_turn() + 1} of {_SHARES}; --full takes all"
    part = "all" if _takes_all(config) else part
    return [f"GPU: {gpu}", f"sampled tests: {part}", *absent]


def _turn() -> int:
    """Return which share is due: each commit has its own, so all come round."""
    run = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, cwd=Path(__file__).parent
    )
    return crc32(run.stdout) % _SHARES


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leave out what is not this commit's; skip GPU tests where there is no GPU."""
    if not _takes_all(config):
        turn = _turn()
        others = [
            item
            for item in items
            if "sampled" in item.keywords
            and crc32(item.nodeid.encode()) % _SHARES != turn
        ]
        config.hook.pytest_deselected(items=others)
        out = set(others)
        items[:] = [item for item in items if item not in out]
    if gpu_present():
        return
    skip = pytest.mark.skip(reason="no NVIDIA GPU on this machine")
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(autouse=True)
def _same_numbers_every_time() -> None:
    """Seed torch: which tests this process ran before must not choose the numbers."""
    torch.manual_seed(20_261_122)
