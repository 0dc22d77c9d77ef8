"""Chapter 10's kernels against float64, beside the library's own errors."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F

from solutions.flash_attention_triton import (
    backward,
    decode_attention,
    dropout_mask,
    forward,
)

Options = dict[str, Any]
KINDS: tuple[Options, ...] = (
    {}, {"causal": True}, {"causal": "bottom-right"}, {"window": 20},
    {"causal": True, "window": (17, 0)}, {"mask": "bool"}, {"mask": "bias"},
    {"padding": True}, {"dropout_p": 0.3, "seed": 12_345_678_901},
    {"causal": True, "mask": "bool", "padding": True, "dropout_p": 0.2, "seed": 3},
)  # fmt: skip
SIZES = (  # batch, heads, kv_heads, q_len, kv_len, head_dim
    (2, 4, 2, 100, 130, 64), (1, 2, 2, 130, 77, 40), (2, 2, 1, 65, 200, 96),
    (1, 3, 1, 1, 70, 32), (1, 2, 2, 150, 150, 128), (1, 1, 1, 40, 300, 256),
    (1, 2, 1, 257, 1, 80),
)  # fmt: skip
LENGTH = 2048
FEW = ((1, 2, 1, 70, 90, 32), (2, 2, 2, 33, 20, 24))


def standard(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool | str = False,
    scale: float | None = None, window: Any = None, mask: torch.Tensor | None = None,
    key_padding_mask: torch.Tensor | None = None, dropout_p: float = 0.0,
    seed: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Attend with the matrix of all weights, in the dtype of the inputs."""
    batch, heads, q_len, head_dim = q.shape
    kv_len, group = k.shape[2], heads // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    s = q @ k.mT * (1 / math.sqrt(head_dim) if scale is None else scale)
    i = torch.arange(q_len, device=q.device)[:, None]
    j = torch.arange(kv_len, device=q.device)[None]
    at = i + (kv_len - q_len if causal == "bottom-right" else 0)
    seen = torch.ones(q_len, kv_len, dtype=torch.bool, device=q.device)
    if causal:
        seen &= j <= at
    if window is not None:
        left, right = window if isinstance(window, tuple) else (window, window)
        seen &= (j >= at - left) if left is not None else seen
        seen &= (j <= at + right) if right is not None else seen
    s = s.masked_fill(~seen, -math.inf)
    if mask is not None and mask.dtype == torch.bool:
        s = s.masked_fill(~mask, -math.inf)
    elif mask is not None:
        s = s + mask.to(s.dtype)
    if key_padding_mask is not None:
        s = s.masked_fill(key_padding_mask[:, None, None], -math.inf)
    dead = (s == -math.inf).all(-1, keepdim=True)
    p = torch.softmax(s.masked_fill(dead, 0.0), -1).masked_fill(dead, 0.0)
    if dropout_p:
        assert seed is not None
        keep = dropout_mask(batch, heads, q_len, kv_len, dropout_p, seed, q.device)
        p = p * keep / (1 - dropout_p)
    return p @ v, torch.logsumexp(s, -1)


def filled(kind: Options, size: tuple[int, ...], device: str) -> Options:
    """Put tensors where a kind of options names masks; one sequence sees nothing."""
    batch, heads, _, q_len, kv_len, _ = size
    options = dict(kind)
    if kind.get("mask") == "bool":
        options["mask"] = torch.rand(batch, 1, q_len, kv_len, device=device) > 0.4
    elif kind.get("mask") == "bias":
        options["mask"] = torch.randn(heads, 1, kv_len, device=device)
    if options.pop("padding", False):
        options["key_padding_mask"] = torch.rand(batch, kv_len, device=device) > 0.7
        options["key_padding_mask"][0] = True
    return options


def check_values(device: str) -> None:
    """Hold forward, backward and decode with every option against float64.

    On a GPU nearly all of the time is compiling, and each set of options is a kernel
    of its own: several processes share it.
    """
    cases = _cases(device)
    if device == "cuda":
        command = [sys.executable, "-m", "benchmarks._flash_attention_triton_errors"]
        shards = min(14, os.cpu_count() or 1)
        running = [
            subprocess.Popen([*command, str(shard), str(shards)])
            for shard in range(shards)
        ]
        failed = [process.args for process in running if process.wait()]
        assert not failed, failed
    else:
        check_some(cases, device)
    dtypes = {dtype for dtype, _, _ in cases}
    print(f"right on {device}: {len(cases)} cases of {len(dtypes)} dtypes")


def _cases(device: str) -> list[tuple[torch.dtype, tuple[int, ...], Options]]:
    if device == "cpu":
        return [(torch.float32, size, kind) for size in FEW for kind in KINDS]
    found = []
    for place, kind in enumerate(KINDS):
        for step, dtype in (
            (0, torch.bfloat16), (3, torch.bfloat16), (1, torch.float16),
            (5, torch.float32),
        ):  # fmt: skip
            found.append((dtype, SIZES[(place + step) % len(SIZES)], kind))
    return found


def check_some(
    cases: list[tuple[torch.dtype, tuple[int, ...], Options]], device: str
) -> None:
    """Check these cases, and decoding in the last one's dtype."""
    torch.manual_seed(0)
    for dtype, size, kind in cases:
        check_one(size, filled(kind, size, device), dtype, device)
    for new, window in ((1, None), (3, 40)):
        check_decode(cases[-1][0], new, window, device)


def check_one(
    size: tuple[int, ...], options: Options, dtype: torch.dtype, device: str
) -> None:
    """Demand errors of at most twice the library's arithmetic, or of roundings."""
    batch, heads, kv_heads, q_len, kv_len, d = size
    q = torch.randn(batch, heads, q_len, d, device=device).to(dtype)
    k, v = torch.randn(2, batch, kv_heads, kv_len, d, device=device).to(dtype)
    grad = torch.randn_like(q)
    out, lse = forward(q, k, v, **options)
    got = (out, *backward(grad, q, k, v, out, lse, **options))
    exact, exact_lse = _with_gradients(q, k, v, grad, torch.float64, options)
    own, _ = _with_gradients(q, k, v, grad, dtype, options)
    words = f"{size}, {dtype}, {sorted(options)}"
    close = torch.isclose(lse.double(), exact_lse, rtol=1e-5, atol=1e-4)
    assert bool((close | (lse == exact_lse)).all()), f"{words}: lse"
    for name, g, e, o in zip(("out", "dq", "dk", "dv"), got, exact, own, strict=True):
        allowed = 2 * (o.double() - e).abs().max() + torch.finfo(dtype).eps + 2e-6
        if kv_len == 1 and name in ("dq", "dk"):
            allowed += _left_of_nothing(q, v, grad)
        elif kv_len == 1 and name == "dv":
            allowed += _left_of_a_long_sum(grad, heads // kv_heads)
        worst = (g.double() - e).abs().max()
        assert worst <= allowed, f"{words}: {name} {worst:.2e}, at most {allowed:.2e}"


def _left_of_nothing(
    q: torch.Tensor, v: torch.Tensor, grad: torch.Tensor
) -> torch.Tensor:
    """Return how much rounding leaves of dS = P (dP - D) where it is exactly 0.

    A single key has all of a row's weight, and dP and D are the same sum of products,
    added up in two ways: each is off by some eps of |grad| |v|. torch's softmax, which
    takes both from one sum, has 0 here and sets no measure.
    """
    sums = grad.float().norm(dim=-1).max() * v.float().norm(dim=-1).max()
    steps = q.float().abs().max() * math.sqrt(q.shape[2]) / math.sqrt(q.shape[3])
    return torch.finfo(torch.float32).eps * sums * steps


def _left_of_a_long_sum(grad: torch.Tensor, group: int) -> torch.Tensor:
    """Return how much rounding leaves in the plain sum that a single key's dV is.

    Every query gives that key all of its weight. The kernel adds up q_len * group
    gradients one after the other: as many partial sums are rounded, each about as
    large as the norm of what is summed. A library that splits the sum rounds less
    often and sets no measure.
    """
    added = grad.shape[2] * group
    norm = grad.float().norm(dim=2).max() * math.sqrt(group)
    return torch.finfo(torch.float32).eps * math.sqrt(added) * norm


def _with_gradients(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, grad: torch.Tensor,
    dtype: torch.dtype, options: Options,
) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:  # fmt: skip
    leaves = [t.to(dtype).requires_grad_() for t in (q, k, v)]
    out, lse = standard(*leaves, **options)
    grads = torch.autograd.grad(out, leaves, grad.to(dtype))
    return (out.detach(), *grads), lse.detach()


def check_decode(dtype: torch.dtype, new: int, window: int | None, device: str) -> None:
    """Hold decoding against float64: lengths, a window, several new tokens."""
    q = torch.randn(3, 6, new, 64, device=device).to(dtype)
    k, v = torch.randn(2, 3, 2, 700, 64, device=device).to(dtype)
    lengths = torch.tensor([0, 5, 690], device=device)
    out = decode_attention(q, k, v, lengths, window=window)
    assert not out[0].any()
    for b in (1, 2):
        n = int(lengths[b])
        exact, _ = standard(
            *(t[b : b + 1, :, :n].double() for t in (q, k, v)), causal="bottom-right",
            window=None if window is None else (window - 1, 0),
        )  # fmt: skip
        assert (out[b] - exact[0]).abs().max() <= 4 * torch.finfo(dtype).eps + 4e-6


def measured_errors() -> list[dict[str, Any]]:
    """Measure errors against float64, ours beside SDPA's, in bf16 and fp16."""
    return [_error(*case) for case in _error_cases()]


def _error_cases() -> Iterator[tuple[str, torch.dtype, float, bool, str]]:
    for dtype in (torch.bfloat16, torch.float16):
        for kernel in ("triton", "gluon"):
            yield "normal", dtype, 1.0, True, kernel
    yield "large", torch.bfloat16, 1e4, False, "gluon"


def _error(
    name: str, dtype: torch.dtype, largest: float, causal: bool, kernel: str
) -> dict[str, Any]:
    """Compare on 2 heads of LENGTH tokens; largest is what logits come to."""
    torch.manual_seed(1)
    q, k, v = torch.randn(3, 1, 2, LENGTH, 128, device="cuda").to(dtype)
    if largest > 1:  # logits of plus and minus this size, and no overflow
        q = (q * (largest / (q.float() @ k.float().mT / 128**0.5).abs().max())).to(
            dtype
        )
    grad = torch.randn_like(q)
    exact, _ = _with_gradients(q, k, v, grad, torch.float64, {"causal": causal})
    leaves = [t.clone().requires_grad_() for t in (q, k, v)]
    peer = F.scaled_dot_product_attention(*leaves, is_causal=causal)
    peers = (peer.detach(), *torch.autograd.grad(peer, leaves, grad))
    chosen: dict[str, Any] = {"causal": causal, "kernel": kernel}
    out, lse = forward(q, k, v, **chosen)
    ours = (out, *backward(grad, q, k, v, out, lse, **chosen))
    row: dict[str, Any] = {
        "name": f"error_{name}_{str(dtype)[6:]}_{kernel}",
        "label": f"{name} logits, {str(dtype)[6:]}, {kernel}",
    }
    for part, o, p, e in zip(
        ("out", "dq", "dk", "dv"), ours, peers, exact, strict=True
    ):
        row[f"{part}_error"] = float((o.double() - e).norm() / e.norm())
        row[f"{part}_of_sdpa"] = float(
            (o.double() - e).norm() / (p.double() - e).norm()
        )
    print(row)
    return row


if __name__ == "__main__":
    shard, shards = int(sys.argv[1]), int(sys.argv[2])
    check_some(_cases("cuda")[shard::shards], "cuda")
