"""A file of weights: a header that is checked, and the rest mapped, not read.

Nothing is computed: what comes back are the bytes that were written.
"""

from __future__ import annotations

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Exercise,
    Output,
    Outputs,
    Problem,
    Tolerance,
)


def file_case(rows: int, columns: int, group_size: int) -> Case:
    """Return a case of one shape, named as the learner reads it."""
    sizes = {"rows": rows, "columns": columns, "group_size": group_size}
    return Case(f"{rows:,} x {columns:,}, groups of {group_size}", sizes)


def _problem(case: Case, generator: torch.Generator) -> Problem:
    rows, columns, size = (case.sizes[n] for n in ("rows", "columns", "group_size"))
    shapes = (rows, columns // 8), (rows, -(-columns // size))
    low, high = -(2**31), 2**31
    words = torch.randint(low, high, shapes[0], generator=generator).int()
    scales = 0.5 + torch.rand(shapes[1], generator=generator)
    return Problem(
        {"words": words, "scales": scales.half(), "group_size": size},
        {
            "words": Output(shapes[0], torch.int32),
            "scales": Output(shapes[1], torch.float16),
        },
    )


def _reference(arguments: Arguments) -> Outputs:
    return {
        "words": tensor(arguments, "words").long(),
        "scales": tensor(arguments, "scales").double(),
    }


MMAP_WEIGHTS = Exercise(
    id="mmap_weights",
    title="Open a file without reading it",
    kind="core",
    points=15,
    language="python",
    entry="function",
    name="open_weights",
    source="solutions/int4/open_weights.py",
    goal="Map a file of weights into memory, and refuse one that is something else.",
    requirements=(
        "The file is what `save_weights` writes: a header in the first 4,096 bytes, "
        "the words, and from the next multiple of 4,096 bytes on the scales. `path` is "
        "a `str`.",
        "`open_weights(path)` returns words (rows, columns / 8), int32, and scales "
        "(rows, groups), fp16. The last group may be smaller than the others; rows or "
        "columns may be 0.",
        "Both tensors lie in a map of the file: of a large file next to nothing is "
        "read. What is written to them stays in this process: `mmap.ACCESS_COPY`.",
        "A `ValueError` that holds the path refuses a file that is shorter than the "
        "header, has another magic or version, is longer or shorter than its header "
        "says, or whose sizes do not fit its length; a group size of 0 fits none.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(
        file_case(5, 264, 128),
        file_case(1024, 8192, 128),
        file_case(7, 1000, 48),
        file_case(64, 128, 128),
        file_case(1, 8, 32),
        file_case(2, 24, 1),
        file_case(0, 256, 128),
        file_case(3, 0, 128),
    ),
    tolerance=Tolerance(factor=0.0),
    hints=(
        "Read HEADER.size bytes and believe nothing: how many are there, and do they "
        "begin with MAGIC? Only then does HEADER.unpack give version, sizes and "
        "length. What do you compare the length with, before anything is mapped?",
        "os.fstat(file.fileno()).st_size is the file's size. From rows, columns and "
        "group size follows where the scales begin (scales_at), and where they end: "
        "that must be the length.",
        "whole = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) maps it; the map "
        "outlives the file's closing. torch.frombuffer(whole, dtype=torch.int32, "
        "count=rows * columns // 8, offset=PAGE).view(rows, -1) are the words. Of no "
        "elements it makes no tensor: there, torch.empty.",
    ),
    onward="Write 4 GB with save_weights, time open_weights, and then words.sum(): "
    "when is the file read?",
    prelude="import mmap\nimport os\nimport struct\n\n"
    "import torch\n\nimport kernelwright as kw\n"
    "from autograder.worker.adapters.weight_files import adapt_weights as __adapt__\n",
    shares={"correct": 1.0, "counts": 0.0, "speed": 0.0},
)
