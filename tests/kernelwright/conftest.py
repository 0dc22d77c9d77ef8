"""Processes of a test's own, for what happens between processes."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

import kernelwright

# The package without what its front imports: torch alone takes some two seconds, and
# neither the cache nor the emulator needs it.
_LEAN = f"""\
import sys, types
package = sys.modules["kernelwright"] = types.ModuleType("kernelwright")
package.__path__ = [{str(Path(kernelwright.__file__).parent)!r}]
"""


@pytest.fixture
def start_lean() -> Callable[[str], subprocess.Popen[str]]:
    """Return a function that starts a script which imports no torch."""

    def start(body: str) -> subprocess.Popen[str]:
        script = _LEAN + textwrap.dedent(body) + '\nassert "torch" not in sys.modules\n'
        return subprocess.Popen(
            [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
        )

    return start
