"""A model's matrices in four bits, by name: whole numbers, so nothing is rounded."""

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
    Value,
)
from autograder.exercises.transformer.wide import PRELUDE


def model_case(
    rows: int, columns: int, group_size: int, regime: str = "distinct"
) -> Case:
    """Return a case of one shape, named as the learner reads it."""
    sizes = {"rows": rows, "columns": columns, "group_size": group_size}
    words = f"{rows} x {columns} and its transpose, groups of {group_size}"
    of = {"zeros": ", groups of zeros", "16 bits": ", in bfloat16"}.get(regime, "")
    return Case(words + of, sizes, regime)


def _problem(case: Case, generator: torch.Generator) -> Problem:
    rows, columns, size = case.sizes.values()
    first = torch.randn(rows, columns, generator=generator)
    second = torch.randn(columns, rows, generator=generator)
    if case.regime == "zeros":
        first[0, :size], second[-1, -size:] = 0.0, 0.0
    if case.regime == "16 bits":
        first, second = first.bfloat16(), second.bfloat16()
    outputs = {}
    for name, matrix in (("first", first), ("second", second)):
        tall, wide = matrix.shape
        outputs[f"{name}_packed"] = Output((tall, wide // 2), torch.uint8, bits=True)
        outputs[f"{name}_scales"] = Output((tall, wide // size), torch.float16)
    given: dict[str, Value | None] = {
        "first": first,
        "second": second,
        "norm": torch.randn(columns, generator=generator),
        "embedding": torch.randn(6, columns, generator=generator),
        "group_size": size,
    }
    return Problem(given, outputs)


def _reference(arguments: Arguments) -> Outputs:
    size = arguments["group_size"]
    assert isinstance(size, int)
    made = {}
    for name in ("first", "second"):
        matrix = tensor(arguments, name).float()
        scales = torch.stack([c.abs().amax(1) for c in matrix.split(size, 1)], 1) / 7
        divisor = scales.repeat_interleave(size, 1).clamp(min=1e-30)
        codes = ((matrix / divisor).round() + 8).long()
        packed = codes.view(len(matrix), -1, 2) @ torch.tensor([1, 16])
        made[f"{name}_packed"] = packed
        made[f"{name}_scales"] = scales.half().double()
    return made


COMPRESS_MODEL = Exercise(
    id="compress_model",
    title="Four bits a weight",
    kind="core",
    points=15,
    language="python",
    entry="function",
    name="compress_model",
    source="solutions/transformer/packing.py",
    goal="Pack the matrices of a model's layers, and let everything else be.",
    requirements=(
        "`state` maps names to tensors. Compressed are those of two dimensions whose "
        "name begins with `layers.`; every other name keeps its tensor, the same "
        "object. `state` and its tensors stay as they are.",
        "Scales are computed and codes made in fp32, and the scales then stored as "
        "fp16. The columns are a multiple of the group size, which is even.",
        "A group of zeros has scale 0 and codes 8.",
        "`packed` is uint8 (rows, columns / 2): the even column's code in the low four "
        "bits.",
        "A tensor under two names is packed once, and both names hold the result.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(
        model_case(16, 24, 8),
        model_case(12, 36, 4, "zeros"),
        model_case(64, 128, 32),
        model_case(8, 16, 4, "16 bits"),
        model_case(2, 6, 2),
    ),
    # What is stored is whole numbers, and fp16 rounded from one fp32 number.
    tolerance=Tolerance(factor=0.0),
    hints=(
        "Decide by name and by tensor.dim(). For one matrix: "
        "tensor.view(rows, -1, group_size) has the groups in its last dimension.",
        "0 / 0 is no code: divide by torch.where(scales > 0, scales, 1.0). Make codes "
        "of the fp32 scales, and .half() of these comes last.",
        "codes[:, 0::2] | (codes[:, 1::2] << 4) packs uint8. A dict from "
        "tensor.data_ptr() to what was made remembers what is packed already.",
    ),
    onward="Which matrix of the chapter's model loses most? Compress one at a time, "
    "and look at the perplexity.",
    prelude=PRELUDE
    + "from autograder.worker.adapters.compressed import adapt_compress as __adapt__\n",
    shares={"correct": 1.0, "counts": 0.0, "speed": 0.0},
)
