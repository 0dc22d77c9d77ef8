"""A tiny course in a folder: two exercises, a chapter, solutions, results."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch

from autograder.authoring.notebooks import Edition
from autograder.exercise import (
    Arguments,
    Case,
    Exercise,
    Output,
    Outputs,
    Problem,
    Tolerance,
)

SOLUTION_CUDA = """\
// What an author writes above the region does not belong to it.
// [exercise:twice]
__global__ void twice(const float* x, float* out, int n) {
    // [hole]
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    // A thread past the end has no element.
    if (i < n) {
        out[i] = 2.0f * x[i];
    }
    // [/hole]
}
// [/exercise]
"""

SOLUTION_PYTHON = """\
import torch

# [exercise:half]
def half(x):
    \"\"\"Return x / 2.\"\"\"
    # [hole]
    return x / 2
    # [/hole]
# [/exercise]
"""

CHAPTER = """\
---
jupytext:
  text_representation: {extension: .md, format_name: myst}
kernelspec: {name: python3, display_name: Python 3, language: python}
---

# Doubling

A {term}`kernel` on {term}`warps <warp>`, in {result}`tiny/meta/device`.

## Setup

```{code-cell} ipython3
:tags: [hide-input]
import torch
```

:::{exercise} twice
:::

```{code-cell} ipython3
:tags: [exercise]
%%cuda
// exercise: twice
```

```{code-cell} ipython3
check(twice)
```

:::{hints} twice
:::

:::{solution} twice
Two times is once plus once.
:::

```{code-cell} ipython3
:tags: [needs-solutions]
import solutions
```

## Halving

See [setting up](../book/setup.md) and [the next](02_next.md).

:::{exercise} half
:::

```{code-cell} ipython3
:tags: [exercise]
# exercise: half
```

```{code-cell} ipython3
# needs: half
half(torch.ones(2))
```

:::{results} tiny
:rows: fast, slow
:columns: label=Kernel | ms:.2f=Time (ms)
:::
"""

RESULTS = {
    "device": "NVIDIA H200",
    "date": "2026-11-21",
    "versions": {"torch": "2.13.0"},
    "rows": [{"name": "fast", "label": "The fast one", "ms": 1.234}],
}


def _problem(case: Case, generator: torch.Generator) -> Problem:
    x = torch.randn(case.sizes["n"], generator=generator)
    return Problem({"x": x}, {"out": Output((x.numel(),), torch.float32)})


def _reference(arguments: Arguments) -> Outputs:
    return {}


def exercise(exercise_id: str, source: str, language: str = "cuda") -> Exercise:
    """Return a declaration with no more in it than the authoring reads."""
    return Exercise(
        id=exercise_id,
        stem="doubling",
        title=exercise_id.capitalize(),
        kind="core",
        points=10,
        language="cuda" if language == "cuda" else "python",
        entry="kernel" if language == "cuda" else "function",
        name=exercise_id,
        source=source,
        goal=f"Write `{exercise_id}`.",
        requirements=("Any length.", "No thread goes astray."),
        problem=_problem,
        reference=_reference,
        cases=(Case("n = 1", {"n": 1}),),
        hidden=lambda generator: (),
        tolerance=Tolerance(1.0),
        hints=("Think.", "Think of `n`.", "Write `if (i < n)`."),
        onward="Go on.",
    )


def exercises() -> Mapping[str, Exercise]:
    """Return the two declarations by id."""
    return {
        "twice": exercise("twice", "solutions/doubling/twice.cu"),
        "half": exercise("half", "solutions/doubling/half.py", "python"),
    }


def lay_out(root: Path) -> tuple[Edition, Path]:
    """Write the course into ``root``; return its edition and its chapter."""
    files = {
        "solutions/doubling/twice.cu": SOLUTION_CUDA,
        "solutions/doubling/half.py": SOLUTION_PYTHON,
        "chapters/01_doubling.md": CHAPTER,
        "benchmarks/results/tiny.json": json.dumps(RESULTS),
        "_config.yml": "repository:\n  url: https://example.org/course\n",
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Edition(root, exercises()), root / "chapters/01_doubling.md"
