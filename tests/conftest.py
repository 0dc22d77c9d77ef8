"""What every test shares: the markers, and a cache that a test run owns."""

from __future__ import annotations

import pytest

from kernelwright.cuda.backends import gpu_present


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip GPU tests where there is no GPU, so that the summary counts them."""
    if gpu_present():
        return
    skip = pytest.mark.skip(reason="no NVIDIA GPU on this machine")
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(skip)
