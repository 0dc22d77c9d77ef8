"""The ladder: four floats a thread, 128 bits at a time."""

from __future__ import annotations

from autograder.drawing import vector_case
from autograder.exercise import Exercise, Launch, Structure, Tolerance
from autograder.exercises.vector_add.shared import (
    CASES,
    add_problem,
    add_reference,
    covering_launch,
    timed,
)
from autograder.ideals import moves


def vector_launch(n: int) -> Launch:
    """Return a launch with a thread for each four elements, the last few included."""
    return covering_launch(-(-n // 4))


VECTOR_ADD_VEC4 = Exercise(
    id="vector_add_vec4",
    title="Four floats a thread",
    kind="ladder",
    points=20,
    language="cuda",
    entry="kernel",
    name="vector_add_vec4",
    source="solutions/vector_add/vectorized.cu",
    goal="Add with 128-bit loads and stores: as close to copy bandwidth as you can.",
    requirements=(
        "The launch has a thread for each four elements, in blocks of 256.",
        "`x`, `y` and `out` begin at multiples of 16 bytes; `n` is any number.",
        "The machine code loads and stores 128 bits at a time.",
    ),
    problem=add_problem(vector_launch),
    reference=add_reference,
    # Whole warps of whole float4s first: what is counted there has no tail in it.
    cases=(
        vector_case(2048),
        *CASES,
        vector_case(4),
        vector_case(1026),
        vector_case(1027),
    ),
    tolerance=Tolerance(factor=1.0),
    hints=(
        "`reinterpret_cast<const float4*>(x)` is the same address, read 16 bytes at"
        " a time. Its element `k` holds `x[4 * k]` to `x[4 * k + 3]`.",
        "There are `n / 4` whole `float4`s: the threads below that number take one "
        "each. What is left are the elements from `4 * (n / 4)` on, at most three.",
        "`float4 p = reinterpret_cast<const float4*>(x)[thread];` the same for `y`;"
        " then store `make_float4(p.x + q.x, ...)`. For the tail: `int last = 4 * "
        "(n / 4) + thread;` and if `last < n`, add that one element.",
    ),
    onward="Two float4s a thread, both loaded before either is added: does it help?",
    # More warps are launched than there are packs.
    counts=moves(width=16, busiest=4),
    # With three elements behind the last four.
    counted=-1,
    structure=(
        Structure(
            holds=("LDG.E.128", "STG.E.128"),
            message="The values are right, and the machine code lacks a 128-bit "
            "load or store (LDG.E.128, STG.E.128): four separate floats are four "
            "instructions. Read and write through a float4 pointer.",
        ),
    ),
    speed=timed({"bronze": 0.75, "silver": 0.88, "gold": 0.95}),
)
