"""What the speed gate's tests share."""

from __future__ import annotations

import sys
from pathlib import Path

# The tests' own helpers lie beside them.
sys.path.insert(0, str(Path(__file__).parent))
