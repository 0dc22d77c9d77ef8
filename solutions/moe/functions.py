"""The functions: what they take is checked, gradients flow."""

from __future__ import annotations

from typing import NamedTuple

import torch

from kernelwright.operators import autocast, recorded
from solutions.moe.experts import experts_operator
from solutions.moe.moves import gather_operator, place_operator, send_operator
from solutions.moe.product import grouped_operator
from solutions.moe.routing import route_operator

_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_INTEGERS = (torch.int32, torch.int64)
NO_LIMIT = 2**31 - 1
MOST_EXPERTS = 4096
"""What one block of the counting sort has shared memory for."""


class Permuted(NamedTuple):
    """Tokens in the order of their experts.

    Args:
        x: (tokens * k, columns): expert 0's tokens, expert 1's, and so on; zeros behind
            the last, where some were dropped.
        rows: (tokens, k), int32: each pair's row of x; -1 where it was dropped.
        offsets: (experts), int32: where each expert's rows end.
    """

    x: torch.Tensor
    rows: torch.Tensor
    offsets: torch.Tensor


@recorded
def route(
    logits: torch.Tensor, k: int, *, renormalize: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """Choose k experts for each token, and weigh them.

        weights = the k largest of softmax(logits), divided by their sum

    Args:
        logits: (tokens, experts); fp16, bf16, fp32 or fp64.
        k: 1 to experts.
        renormalize: divide by the sum of the k; else weights are shares of all experts.

    Returns:
        Weights (tokens, k), fp32 (fp64 for fp64), falling; experts (tokens, k), int32.
        Of equal logits the lower expert comes first. Gradients flow to logits.

    Raises:
        TypeError, ValueError: what does not fit, named.

    Cost: logits read once, k numbers and k experts written for each token.
    """
    _is_matrix("route", "logits", logits)
    experts = logits.shape[1]
    if not isinstance(k, int) or not 1 <= k <= experts:
        raise ValueError(
            f"route: k is {k!r}; wanted 1 to {experts}, the number of experts."
        )
    weights, chosen = route_operator(logits, k, renormalize)
    return weights, chosen


@recorded
def permute(
    x: torch.Tensor, chosen: torch.Tensor, experts: int, capacity: int | None = None
) -> Permuted:
    """Copy tokens to where their experts' rows are, in the order of tokens.

    Args:
        x: (tokens, columns); fp16, bf16, fp32 or fp64.
        chosen: (tokens, k), int32 or int64: experts; what is no expert's number, such
            as -1, goes nowhere.
        experts: how many there are, up to 4,096.
        capacity: the most tokens of an expert; later ones are dropped. No limit when
            absent.

    Returns:
        What was moved, and where to. Gradients flow to x.

    Raises:
        TypeError, ValueError: what does not fit, named.

    Cost: x read once, and written k times.
    """
    _is_matrix("permute", "x", x)
    _is_choice("permute", chosen, x.shape[0], x.device)
    if not isinstance(experts, int) or not 1 <= experts <= MOST_EXPERTS:
        raise ValueError(
            f"permute: experts is {experts!r}; wanted 1 to {MOST_EXPERTS}."
        )
    if capacity is not None and (not isinstance(capacity, int) or capacity < 0):
        raise ValueError(f"permute: capacity is {capacity!r}; wanted 0 or more.")
    limit = NO_LIMIT if capacity is None else min(capacity, NO_LIMIT)
    chosen = chosen.to(torch.int32)
    rows, begins, ends = place_operator(chosen, experts, limit)
    moved = send_operator(x, rows, None, begins, ends, chosen.numel())
    return Permuted(moved, rows, ends)


@recorded
def unpermute(
    y: torch.Tensor, rows: torch.Tensor, weights: torch.Tensor | None = None
) -> torch.Tensor:
    """Sum up what experts made of each token: ``sum of weights[t, j] y[rows[t, j]]``.

    Args:
        y: (height, columns); fp16, bf16, fp32 or fp64.
        rows: (tokens, k), int32, as ``permute`` returns them, no row twice; -1 adds
            nothing.
        weights: (tokens, k), fp32 (fp64 for fp64); 1 each when absent.

    Returns:
        (tokens, columns), summed in fp32 (fp64). Gradients flow to y and weights.

    Raises:
        TypeError, ValueError: what does not fit, named.

    Cost: k rows of y read and one written for each token.
    """
    _is_matrix("unpermute", "y", y)
    _is_choice("unpermute", rows, None, y.device, name="rows")
    if weights is not None:
        wide = torch.promote_types(y.dtype, torch.float32)
        if weights.shape != rows.shape or weights.device != y.device:
            raise ValueError(
                f"unpermute: weights are {tuple(weights.shape)} on {weights.device}; "
                f"wanted {tuple(rows.shape)} on {y.device}, one for each of rows."
            )
        weights = weights.to(wide)
    out: torch.Tensor = gather_operator(y, rows.to(torch.int32), weights)
    return out


@recorded
def grouped_gemm(
    x: torch.Tensor, weights: torch.Tensor, offsets: torch.Tensor
) -> torch.Tensor:
    """Multiply each expert's rows by its own matrix.

        out[i] = x[i] weights[e],   offsets[e - 1] <= i < offsets[e]

    Args:
        x: (height, inner); fp16, bf16, fp32 or fp64.
        weights: (experts, inner, columns), of x's dtype; either of the last two may lie
            next to each other.
        offsets: (experts), int32 or int64, rising: where each expert's rows end, as for
            ``torch._grouped_mm``. An expert may have none.

    Returns:
        (height, columns); zeros in rows behind the last expert's. Gradients flow to x
        and weights.

    Raises:
        TypeError, ValueError: what does not fit, named.

    Cost: 2 height inner columns FLOPs, summed in fp32 (fp64). The host does not learn
    how many rows an expert has, but for fp64.

    When not to use it: for experts that all have the same number of rows: that is
    ``torch.bmm``.
    """
    x, weights = autocast(x, weights)
    _is_matrix("grouped_gemm", "x", x)
    if not isinstance(weights, torch.Tensor) or weights.dtype != x.dtype:
        got = getattr(weights, "dtype", type(weights).__name__)
        raise TypeError(f"grouped_gemm: weights are {got}; wanted x's {x.dtype}.")
    if weights.dim() != 3 or weights.shape[1] != x.shape[1]:
        raise ValueError(
            f"grouped_gemm: weights are {tuple(weights.shape)}; wanted (experts, "
            f"{x.shape[1]}, columns), a row for each of x's columns."
        )
    if offsets.dtype not in _INTEGERS or tuple(offsets.shape) != weights.shape[:1]:
        raise ValueError(
            f"grouped_gemm: offsets are {offsets.dtype} of shape "
            f"{tuple(offsets.shape)}; wanted int32, ({weights.shape[0]},): where each "
            "expert's rows end."
        )
    for name, one in (("weights", weights), ("offsets", offsets)):
        if one.device != x.device:
            raise ValueError(
                f"grouped_gemm: {name} are on {one.device}, x is on {x.device}; wanted "
                "the same."
            )
    out: torch.Tensor = grouped_operator(x, weights, offsets.to(torch.int32))
    return out


@recorded
def moe_mlp(
    x: torch.Tensor,
    weights: torch.Tensor,
    chosen: torch.Tensor,
    gate_up: torch.Tensor,
    down: torch.Tensor,
    capacity: int | None = None,
) -> torch.Tensor:
    """Send each token through its experts, and sum up what they make of it.

        out[t] = sum over j of weights[t, j] expert[chosen[t, j]](x[t]),
        expert[e](x) = down[e] (silu(gate[e] x) * (up[e] x))

    Args:
        x: (tokens, d_model); fp16, bf16, fp32 or fp64.
        weights: (tokens, k), as ``route`` returns them.
        chosen: (tokens, k), int32 or int64; what is no expert's number adds nothing.
        gate_up: (experts, 2 d_ff, d_model), of x's dtype: gates first.
        down: (experts, d_model, d_ff), of x's dtype.
        capacity: the most tokens of an expert; later ones are dropped, and add nothing.

    Returns:
        (tokens, d_model). Gradients flow to x, weights, gate_up and down.

    Raises:
        TypeError, ValueError: what does not fit, named.

    Cost: 6 tokens k d_model d_ff FLOPs. Kept for the backward pass: x, and 2 d_ff
    numbers for each pair of token and expert.
    """
    x, gate_up, down = autocast(x, gate_up, down)
    _is_matrix("moe_mlp", "x", x)
    _is_choice("moe_mlp", chosen, x.shape[0], x.device)
    experts, d_model = gate_up.shape[0], x.shape[1]
    d_ff = down.shape[-1]
    wanted = {"gate_up": (experts, 2 * d_ff, d_model), "down": (experts, d_model, d_ff)}
    for name, one in (("gate_up", gate_up), ("down", down)):
        right = one.dtype == x.dtype and one.device == x.device
        if not right or tuple(one.shape) != wanted[name]:
            raise ValueError(
                f"moe_mlp: {name} is {one.dtype} of shape {tuple(one.shape)} on "
                f"{one.device}; wanted {x.dtype}, {wanted[name]}, on {x.device}."
            )
    if experts > MOST_EXPERTS:
        raise ValueError(f"moe_mlp: {experts} experts; wanted {MOST_EXPERTS} at most.")
    if tuple(weights.shape) != tuple(chosen.shape) or weights.device != x.device:
        raise ValueError(
            f"moe_mlp: weights are {tuple(weights.shape)} on {weights.device}; wanted "
            f"{tuple(chosen.shape)} on {x.device}, one for each of chosen."
        )
    wide = torch.promote_types(x.dtype, torch.float32)
    limit = NO_LIMIT if capacity is None else capacity
    given = (x, weights, gate_up, down)
    keep = torch.is_grad_enabled() and any(one.requires_grad for one in given)
    out: torch.Tensor = experts_operator(
        x, weights.to(wide), chosen.to(torch.int32), gate_up, down, limit, keep
    )[0]
    return out


def load_balance_loss(logits: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    """Return how unequally experts are used: 1 when all are used alike.

        experts * sum over e of (share of pairs that chose e) * (mean probability of e)

    Args:
        logits: (tokens, experts).
        chosen: (tokens, k), as ``route`` returns it.

    Returns:
        A number, in fp32 (fp64); its gradient flows to logits by way of the mean
        probability, for the share has none. 0 for no tokens.

    Raises:
        TypeError, ValueError: what does not fit, named.

    Source: Fedus, Zoph and Shazeer, Switch Transformers (JMLR 23, 2022), equations 4
    to 6, there for k = 1.
    """
    _is_matrix("load_balance_loss", "logits", logits)
    _is_choice("load_balance_loss", chosen, logits.shape[0], logits.device)
    wide = torch.promote_types(logits.dtype, torch.float32)
    tokens, experts = logits.shape
    counts = torch.zeros(experts, dtype=wide, device=logits.device)
    ones = torch.ones((), dtype=wide, device=logits.device).expand(chosen.numel())
    counts = counts.index_add(0, chosen.flatten().long(), ones)
    share = counts / max(1, chosen.numel())
    mean = logits.to(wide).softmax(-1).sum(0) / max(1, tokens)
    return experts * (share * mean).sum()


def _is_matrix(function: str, name: str, x: torch.Tensor) -> None:
    if not isinstance(x, torch.Tensor) or x.dtype not in _DTYPES:
        got = x.dtype if isinstance(x, torch.Tensor) else type(x).__name__
        raise TypeError(
            f"{function}: {name} is {got}; wanted a tensor of float16, bfloat16, "
            "float32 or float64."
        )
    if x.dim() != 2:
        raise ValueError(
            f"{function}: {name} has shape {tuple(x.shape)}; wanted two dimensions, a "
            "row for each token."
        )


def _is_choice(
    function: str,
    chosen: torch.Tensor,
    tokens: int | None,
    device: torch.device,
    name: str = "chosen",
) -> None:
    if not isinstance(chosen, torch.Tensor) or chosen.dtype not in _INTEGERS:
        got = chosen.dtype if isinstance(chosen, torch.Tensor) else type(chosen)
        raise TypeError(f"{function}: {name} is {got}; wanted int32 or int64.")
    wanted = "tokens" if tokens is None else tokens
    if chosen.dim() != 2 or tokens not in (None, chosen.shape[0]):
        raise ValueError(
            f"{function}: {name} has shape {tuple(chosen.shape)}; wanted ({wanted}, k)."
        )
    if chosen.device != device:
        raise ValueError(
            f"{function}: {name} is on {chosen.device}; wanted {device}, as the rest."
        )
