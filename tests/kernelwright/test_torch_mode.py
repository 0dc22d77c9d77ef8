"""Modes that see every operation of torch's, and what their first use takes along."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WATCHED = """
from autograder.worker.operations import operations_seen
with operations_seen() as seen:
    torch.logsumexp(torch.zeros(2, 2), 1)
assert "logsumexp" in seen and "aten.logsumexp.default" in seen, seen
"""
MARKED = """
from kernelwright.trace.unwritten import is_unwritten, marking_empty_tensors
with marking_empty_tensors():
    empty, full = torch.empty(4), torch.zeros(4)
assert is_unwritten(empty) and not is_unwritten(full)
"""


@pytest.mark.parametrize("body", [WATCHED, MARKED], ids=["watched", "marked"])
def test_torchs_compiler_is_not_imported(body: str) -> None:
    """It would take a second of whoever watches first."""
    ends = "assert 'torch._dynamo' not in sys.modules\n"
    program = f"import sys, torch\n{body}{ends}"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


def test_what_torchs_compiler_runs_is_still_seen() -> None:
    import torch

    from kernelwright.trace.unwritten import is_unwritten, marking_empty_tensors

    made = torch.compile(lambda x: torch.empty_like(x), backend="eager")
    with marking_empty_tensors():
        assert is_unwritten(made(torch.zeros(4)))
