"""The layer with its gradient: the reader's own kernels, and torch between them.

**Tolerance.** What is kept in 16 bits between the products is rounded by up to half an
eps of itself, 0.3 eps in the mean square, and each rounding by itself: an error of a
sum is the root of the squares' sum. ``_tolerated`` follows the roundings of gates and
ups (a, b), of the hidden layer h, of y = h D, of u = D g, of their gradients and of
what they make, each as eps of its number; of that a factor of 2 is allowed, some seven
standard deviations. Whether the weights meet g before its product with D or u after it
makes one rounding more of g, which is in u's. A last rounding, to fp16, is at most half
an eps of the result. Below 2^-14 fp16 has steps of 2^-24, whatever the number, and a
sum in fp32 that comes to almost nothing errs as much: ``_LEAST``.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Exercise,
    Output,
    Outputs,
    Problem,
    Structure,
    Tolerance,
)
from autograder.exercises.moe.routed import draw_chosen, routed_case

HALF = torch.float16
_EPS = torch.finfo(HALF).eps / torch.finfo(torch.float32).eps
"""An eps of fp16, in those of fp32."""
_LEAST = 2.0**-26
"""Of a number near 0, in place of its square: twice the step below 2^-14."""


def _problem(case: Case, generator: torch.Generator) -> Problem:
    tokens, k, experts, d, f = (
        case.sizes[name] for name in ("tokens", "k", "experts", "d", "f")
    )

    def normal(*shape: int, size: float = 1.0) -> torch.Tensor:
        return (size * torch.randn(shape, generator=generator)).half()

    # Of out.sum() autograd hands down one number for all, with strides of 0.
    grad = (1, 1) if case.regime == "summed" else (tokens, d)
    x, gate_up = normal(tokens, d), normal(experts, d, 2 * f, size=1.5 / d**0.5)
    down = normal(experts, f, d, size=1.5 / f**0.5)
    weights = 0.1 + torch.rand(tokens, k, generator=generator)
    chosen = draw_chosen(case, generator, tokens, k)
    return Problem(
        {
            "x": x,
            "weights": weights,
            "experts": chosen,
            "gate_up": gate_up,
            "down": down,
            "grad": normal(*grad),
        },
        {
            "out": Output((tokens, d), HALF),
            "dx": Output((tokens, d), HALF),
            "dweights": Output((tokens, k), torch.float32),
            "dgate_up": Output(tuple(gate_up.shape), HALF),
            "ddown": Output(tuple(down.shape), HALF),
        },
    )


def _given(arguments: Arguments) -> list[torch.Tensor]:
    """Return x, weights, each pair's matrices and the gradient, in float64."""
    names = ("x", "weights", "gate_up", "down", "grad")
    x, weights, gate_up, down, grad = (tensor(arguments, n).double() for n in names)
    chosen = tensor(arguments, "experts").long()
    return [x, weights, gate_up[chosen], down[chosen], grad.expand_as(x)]


def _by_expert(arguments: Arguments, pairs: torch.Tensor, name: str) -> torch.Tensor:
    """Add up (tokens, k, ...) to what the experts' matrices are."""
    chosen = tensor(arguments, "experts").long().flatten()
    into = torch.zeros_like(tensor(arguments, name), dtype=torch.double)
    return into.index_add(0, chosen, pairs.flatten(0, 1))


def _reference(arguments: Arguments) -> Outputs:
    *inputs, grad = _given(arguments)
    x, weights, gate_up, down = (one.requires_grad_() for one in inputs)
    gate, up = torch.einsum("td,tkdf->tkf", x, gate_up).chunk(2, -1)
    out = torch.einsum("tk,tkf,tkfd->td", weights, F.silu(gate) * up, down)
    dx, dweights, dgate_up, ddown = torch.autograd.grad(out, inputs, grad)
    return {
        "out": out.detach(),
        "dx": dx,
        "dweights": dweights,
        "dgate_up": _by_expert(arguments, dgate_up, "gate_up"),
        "ddown": _by_expert(arguments, ddown, "down"),
    }


def _tolerated(arguments: Arguments) -> Outputs:
    x, w, gate_up, down, g = _given(arguments)
    a, b = torch.einsum("td,tkdf->tkf", x, gate_up).chunk(2, -1)
    u = torch.einsum("td,tkfd->tkf", g, down)
    share = a.sigmoid()
    silu, slope = a * share, share * (1 + a * (1 - share))
    h = silu * b
    da, db = w[..., None] * u * b * slope, w[..., None] * u * silu
    moved = torch.einsum("tkf,tkdf->tkd", torch.cat((da, db), -1), gate_up)
    # Squares of errors, in eps of fp16; silu's second derivative is at most a half.
    w2, gate_up2, down2 = w[..., None] ** 2, gate_up**2, down**2
    a2, b2 = a**2 + _LEAST, b**2 + _LEAST
    h2 = (slope * b) ** 2 * a2 + silu**2 * b2 + h**2 + _LEAST
    y2 = torch.einsum("tkf,tkfd->tkd", h2, down2)
    y2 += torch.einsum("tkf,tkfd->tkd", h, down) ** 2
    u2 = _LEAST + u**2 + torch.einsum("td,tkfd->tkf", g**2, down2)
    da2 = u2 * (b * slope) ** 2 + u**2 * (b**2 * a2 / 4 + slope**2 * b2)
    db2 = u2 * silu**2 + (u * slope) ** 2 * a2
    both2 = torch.cat((w2 * da2 + da**2, w2 * db2 + db**2), -1) + _LEAST
    moved2 = torch.einsum("tkf,tkdf->tkd", both2, gate_up2) + moved**2
    dgate_up2 = torch.einsum("td,tkf->tkdf", x**2, both2)
    ddown2 = torch.einsum("tkf,td->tkfd", w2 * (h2 + h**2) + _LEAST, g**2)
    squares = {
        "out": (w2 * y2).sum(1),
        "dx": moved2.sum(1),
        "dweights": (h2 * u**2 + h**2 * u2).sum(-1) * _EPS**2,
        "dgate_up": _by_expert(arguments, dgate_up2, "gate_up"),
        "ddown": _by_expert(arguments, ddown2, "down"),
    }
    last = _reference(arguments)
    return {name: s.sqrt() + last[name].abs() / 4 for name, s in squares.items()}


MOE_LAYER = Exercise(
    id="moe_layer",
    title="The layer, there and back",
    kind="core",
    points=25,
    language="python",
    entry="function",
    name="moe_layer",
    source="solutions/moe/moe_layer.py",
    goal="Send tokens through their experts and back over your own kernels, with the "
    "gradients of x, the weights and both matrices, as a `torch.autograd.Function`.",
    requirements=(
        "`x` is (tokens, d), fp16, d a multiple of 8; `weights` and `experts` are "
        "(tokens, k), as `topk_gating` returns them; `gate_up` is (experts, d, 2 f), "
        "gates first, and `down` (experts, f, d), both fp16. An expert may have no "
        "token.",
        "Your `expert_offsets`, `permute_tokens` and `grouped_gemm` are called, and "
        "must be solved; the two functions above the class launch the first two. "
        "`grouped_gemm` makes four products: two forward, and backward those that "
        "give u and the rows of x's gradient.",
        "The matrices' gradients are a loop over experts, in torch, and so is all that "
        "lies between two products: in fp32, rounded to fp16 for the next one.",
        "`save_for_backward` keeps the inputs, gates and ups (in fp16), rows and "
        "offsets.",
        "backward returns a gradient for each of forward's five arguments, of its "
        "shape and dtype; `None` for `experts`.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(
        routed_case(tokens=40, k=2, experts=4, d=40, f=24),
        routed_case("skewed", tokens=29, k=3, experts=5, d=16, f=17),
        routed_case("idle", tokens=21, k=2, experts=6, d=24, f=16),
        routed_case("crowded", tokens=70, k=1, experts=3, d=24, f=8),
        routed_case("summed", tokens=19, k=2, experts=3, d=16, f=20),
        routed_case(tokens=5, k=4, experts=4, d=8, f=3),
        routed_case(tokens=1, k=1, experts=3, d=8, f=1),
        routed_case(tokens=0, k=2, experts=3, d=8, f=4),
    ),
    tolerance=Tolerance(2.0, scale=_tolerated),
    hints=(
        "Forward has five steps: offsets, permuted tokens, a product, silu(gate) * up, "
        "a product; then `y[rows]` is (tokens, k, d). Backward takes them in the "
        "opposite order. Which of the formulas above are for rows, and which for "
        "pairs? `rows` leads from the one to the other.",
        "A token's gradient goes to its k rows like the token itself: permute(grad, "
        "experts, offsets). With down.mT.contiguous() grouped_gemm makes u of it. The "
        "weight of a row: weight[rows.flatten(), 0] = weights.flatten(); what is a "
        "number a row becomes one a pair by [rows]. And x's gradient is the sum of "
        "its k rows.",
        "share = gate.sigmoid(); hidden = gate * share * up; the weights' gradient is "
        "(hidden * u).sum(1)[rows]. With d_hidden = weight * u the gates' is d_hidden "
        "* up * share * (1 + gate * (1 - share)), the ups' d_hidden * gate * share; "
        "torch.cat both, .half(), and grouped_gemm with gate_up.mT.contiguous(). For "
        "expert e with rows `own`: moved[own].mT @ d_both[own], and (weight * "
        "hidden).half()[own].mT @ slopes[own].",
    ),
    onward="Let both transposes of the matrices go: what must grouped_gemm be told?",
    structure=(
        Structure(
            holds=("torch.autograd", "grouped_gemm", "permute_tokens"),
            message="The values are right. Wanted was a torch.autograd.Function over "
            "your own expert_offsets, permute_tokens and grouped_gemm.",
        ),
    ),
    repeats=("experts",),
    needs=("expert_offsets", "permute_tokens", "grouped_gemm"),
    prelude="import torch\nimport torch.nn.functional as F\n"
    "import kernelwright as kw\nimport triton\nimport triton.language as tl\n"
    "from autograder.worker.adapters.training import adapt_layer as __adapt__\n",
    shares={"correct": 1.0, "counts": 0.0, "speed": 0.0},
)
