"""A fuser of some 30 lines: an expression becomes one kernel, its gradient another.

The package's own (``source.py``, ``derivative.py``) has more operations, dtypes and
shapes, and the same three parts: name each node once, print a kernel, apply the chain
rule from the result back.
"""

from __future__ import annotations

import torch

import kernelwright as kw
from kernelwright.expression import Node, differentiable, in_order, traced

# fmt: off
# [exercise:fuser]
PACK = 4  # elements a thread owns; 1 is where to begin

# An operation in CUDA C++, of the names of its arguments.
SPELLED = {
    "add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}", "div": "{} / {}",
    "neg": "-({})", "exp": "expf({})", "log": "logf({})",
    "sqrt": "sqrtf({})", "tanh": "tanhf({})", "erf": "erff({})",
    "sigmoid": "1.0f / (1.0f + expf(-({})))",
    "relu": "{0} < 0.0f ? 0.0f : {0}", "gt": "{} > {} ? 1.0f : 0.0f",
}

# The gradient of each argument, for g, the gradient of the result y.
SLOPES = {
    "add": lambda g, y, a, b: (g, g),
    "mul": lambda g, y, a, b: (g * b, g * a),
    "relu": lambda g, y, a: (g * (a > 0),),
    "gt": lambda g, y, a, b: (),
}
# [hole]
SLOPES |= {
    "sub": lambda g, y, a, b: (g, -g),
    "div": lambda g, y, a, b: (g / b, -(g * y / b)),
    "neg": lambda g, y, a: (-g,),
    "exp": lambda g, y, a: (g * y,),
    "log": lambda g, y, a: (g / a,),
    "sqrt": lambda g, y, a: (0.5 * g / y,),
    "tanh": lambda g, y, a: (g * (1 - y * y),),
    "sigmoid": lambda g, y, a: (g * (y * (1 - y)),),
    "erf": lambda g, y, a: (2 / torch.pi**0.5 * g * (-(a * a)).exp(),),
}
# [/hole]


def statements(roots):
    """Return C++ lines for y0, y1, … of x0, x1, …: each node once."""
    names, lines = {}, []

    def name_of(node):
        """Return what a node is called, computing it first if need be."""
        # [hole]
        if node in names:
            return names[node]
        if node.op == "input":
            names[node] = f"x{node.value}"
        elif node.op == "constant":
            names[node] = f"{node.value}f"
        else:
            value = SPELLED[node.op].format(*map(name_of, node.arguments))
            names[node] = f"t{len(names)}"
            lines.append(f"const float {names[node]} = {value};")
        return names[node]
        # [/hole]

    for k, root in enumerate(roots):
        lines.append(f"y{k} = {name_of(root)};")
    return lines


def kernel(name, inputs, roots):
    """Return a kernel's text: void name(x0, x1, …, y0, y1, …, int n)."""
    xs = [f"x{k}" for k in range(inputs)]
    ys = [f"y{k}" for k in range(len(roots))]
    values = ", ".join([f"float {x}" for x in xs]
                       + [f"float& {y}" for y in ys])
    arrays = ", ".join([f"const float* {x}" for x in xs]
                       + [f"float* {y}" for y in ys])

    def call(of):
        """Return a call for one element: of="[i]" gives it x0[i], …."""
        return f"{name}_one({', '.join(v + of for v in xs + ys)});"

    body = ""  # the kernel's lines
    # [hole]
    body = "\n    ".join([
        "int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);",
        "if (i + 3 < n) {",
        *[f"float4 {x}_ = *(const float4*)({x} + i);" for x in xs],
        *[f"float4 {y}_;" for y in ys],
        *[call(f"_.{lane}") for lane in "xyzw"],
        *[f"*(float4*)({y} + i) = {y}_;" for y in ys],
        "} else {",
        f"for (; i < n; i++) {call('[i]')}",
        "}"])
    # [/hole]
    element = "\n    ".join(statements(roots))
    return f"""
__device__ void {name}_one({values}) {{
    {element}
}}
__global__ void {name}({arrays}, int n) {{
    {body}
}}
"""


def slopes(root, inputs):
    """Return each input's gradient; root's own is one more input."""
    found = {root: Node("input", value=inputs)}
    # [hole]
    for node in reversed(in_order(root)):
        if node in found and node.arguments:
            parts = SLOPES[node.op](found[node], node, *node.arguments)
            for argument, part in zip(node.arguments, parts, strict=False):
                before = found.get(argument)
                found[argument] = part if before is None else before + part
    # [/hole]
    zero = Node("constant", value=0.0)
    return [found.get(Node("input", value=k), zero) for k in range(inputs)]


def fuse(function):
    """Return function as one kernel, and one more for its gradients."""
    root, inputs = traced(function)
    text = (kernel("forward", inputs, [root])
            + kernel("backward", inputs + 1, slopes(root, inputs)))
    module = kw.cuda.compile(text)

    def launch(name, results, tensors):
        made = [torch.empty_like(tensors[0]) for _ in range(results)]
        if n := tensors[0].numel():
            module[name][kw.cdiv(n, 256 * PACK), 256](*tensors, *made, n)
        return made

    return differentiable(lambda *xs: launch("forward", 1, xs)[0],
                          lambda *xs: launch("backward", inputs, xs))


# [/exercise]
