"""The ladder: a fuser, tried on chains that its author has not seen."""

from __future__ import annotations

from autograder.exercise import Count, Exercise, Speed, Structure, Tolerance
from autograder.exercises.fusion.chains import (
    FACTOR,
    chain_case,
    chain_problem,
    chain_reference,
    chain_scale,
)
from autograder.exercises.fusion.shared import IN_DOUBLE, TIMED
from autograder.ideals import moves

_DEEP = 4
# An input is read by forward and by backward; the gradient by backward alone.
_READS = {"x": 2, "y": 2, "z": 2}

FUSER = Exercise(
    id="fuser",
    title="A fuser of your own",
    kind="ladder",
    points=30,
    language="python",
    entry="function",
    name="fuse",
    source="solutions/fusion/fuser.py",
    goal="Write the three parts of a fuser: `statements` prints an expression as C++, "
    "`kernel` puts it into a kernel, and `slopes` makes the gradients' expressions by "
    "the chain rule. `fuse`, which is given, compiles and launches what they print.",
    requirements=(
        "Given by `kernelwright.expression`: `Node`, whose `op`, `arguments` and "
        "`value` you read, and which `+ - * / >`, the sign and methods such as "
        "`.tanh()` make more of; `in_order(root)`, every node once, arguments first. "
        "Equal nodes are one object.",
        "`statements`: `const float t0 = …;` for each operation, once, however often "
        "it is used. An input's name is `x` and its `value`; a constant is its "
        "`value`, written as a float.",
        "`kernel`: the lines of a kernel whose threads own `PACK` elements each, for "
        "any `n`; each element is loaded or stored once. With `PACK = 1` two lines do; "
        "4 is for speed.",
        "`SLOPES`: one line per operation, nine of them to add. `slopes`: from the "
        "result back; the gradient of what is used twice is the sum. What only a "
        "comparison uses has none, and is never in `found`.",
        "Backward reads the inputs and the gradient, keeps nothing of forward's, and "
        "writes all gradients in one kernel.",
    ),
    problem=chain_problem,
    reference=chain_reference,
    cases=(
        chain_case(
            # 0.7 is no float: in double the compiler must stay there.
            1024,
            f"lambda x, y: repeat(lambda h: h + 0.7 * (h * y).tanh(), {_DEEP}, x)",
        ),
        chain_case(1003, "lambda x, y: 0.5 * x * x - y / (1 + x.sigmoid())"),
        chain_case(
            257,
            "lambda x, y: ((x * x + 1).sqrt() - (y * y + 2).log()) * x.erf() - y.exp()",
        ),
        chain_case(6, "lambda x, y, z: -(x - y).relu() + (x * y > 0.1) * y * 3"),
        chain_case(1, "lambda x: x"),
        chain_case(0, "lambda x: x"),
    ),
    tolerance=Tolerance(FACTOR, scale=chain_scale),
    hints=(
        "Begin with PACK = 1 and a kernel of two lines: i, and a call of the element's "
        "function inside of the guard. name_of is called for every argument of every "
        "node: what must it do the second time that it is asked for the same node?",
        "statements: if the node is in names, return that; else name the arguments "
        "first (they append their lines before yours), format SPELLED[node.op] with "
        "the names, append the line. slopes: for node in reversed(in_order(root)), "
        "pass over inputs, constants and what is not in found; "
        "SLOPES[node.op](found[node], node, *node.arguments) are the parts that its "
        "arguments add to theirs.",
        'kernel, with PACK = 1: body = f"int i = blockIdx.x * blockDim.x + '
        "threadIdx.x; if (i < n) {call('[i]')}\". With PACK = 4: where i + 3 < n, "
        "one line `float4 x0_ = *(const float4*)(x0 + i);` for each x, one `float4 "
        "y0_;` for each y, call('_.x') to call('_.w'), and a line `*(float4*)(y0 + i) "
        "= y0_;` for each y; else a loop over what is left.",
    ),
    onward="Fold x * 1.0 and x + 0.0 away, add maximum and where, print fp16: the "
    "package's fuse is this, with all that added. Is yours as fast?",
    counts=(
        *moves(_READS),
        # Forward computes each tanh once, and backward again; four written out are
        # four times as many. Without names it is 2 ** _DEEP - 1 in forward alone.
        Count("calls of tanhf in the text", ideal=2 * _DEEP, times=4.2),
    ),
    structure=(
        Structure(
            holds=("kw.cuda",),
            lacks=("torch.tanh", "torch.exp", "torch.compile"),
            runs_no=("tanh", "sigmoid", "erf", "aten.mul", "aten.exp."),
            message="The values are right, and it is not your kernels alone that made "
            "them: print the expression, compile it, launch it.",
        ),
        Structure(
            lacks=IN_DOUBLE,
            message="The values are right, and the printed kernel computes in double "
            "(DADD, DMUL, DFMA): write a constant with an f, 0.5f.",
        ),
    ),
    speed=Speed(
        peer="copy bandwidth",
        case=chain_case(TIMED, "lambda x, y: (x * y).tanh() * x + y.sigmoid()"),
        # Forward three passes, backward five.
        bytes_moved=lambda case: 8 * 4 * case.sizes["n"],
        bands={"bronze": 0.60, "silver": 0.80, "gold": 0.92},
    ),
    prelude="import math\nimport torch\nimport kernelwright as kw\n"
    "from kernelwright.expression import Node, differentiable, in_order, traced\n"
    "from autograder.worker.adapters.fusing import adapt_fuser as __adapt__\n",
)
