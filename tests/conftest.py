"""What every test shares: which tests a machine can run, said aloud."""

from __future__ import annotations

import os
from importlib.util import find_spec

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


def pytest_report_header() -> list[str]:
    """Name what this machine cannot run."""
    gpu = "present" if gpu_present() else "none; gpu tests skip"
    absent = [f"not collected without {n}: {', '.join(_NEEDED[n])}" for n in _ABSENT]
    return [f"GPU: {gpu}", *absent]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip GPU tests where there is no GPU, so that the summary counts them."""
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
