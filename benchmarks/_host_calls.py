"""One small call of each family beside torch's: what is timed is the CPU's part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from solutions.epilogue import conv2d_bias_act, gated_mlp, linear_gelu
from solutions.flash_attention import decode_attention, flash_attention
from solutions.fusion import add_relu, attention_score, bias_gelu, gelu, mul_tanh
from solutions.int4 import dequantize, pack, quantize
from solutions.int4 import linear as int4_linear
from solutions.layernorm import layer_norm, layer_norm_relu, rms_norm
from solutions.matmul import matmul
from solutions.moe import grouped_gemm, moe_mlp, permute, route, unpermute
from solutions.reduction import mean_abs, sum_all, sum_squared
from solutions.softmax import softmax
from solutions.tensor_cores import gemm
from solutions.transpose import transpose
from solutions.vector_add import add_one, saxpy, vector_add


class Call(NamedTuple):
    """A function, torch's for the same, and what both are given.

    Args:
        name: of the function.
        ours: takes the operands.
        peer: likewise; None where torch has none.
        operands: small, and floating.
        tolerance: of the values, relative and absolute.
    """

    name: str
    ours: Callable[..., torch.Tensor]
    peer: Callable[..., torch.Tensor]
    operands: tuple[torch.Tensor, ...]
    tolerance: float = 1e-5


def calls(device: str) -> Iterator[Call]:
    """Yield a call of each function, with fresh operands.

    Args:
        device: of the operands; on the CPU they are smaller still.
    """
    on_gpu = device.startswith("cuda")
    half = torch.bfloat16 if on_gpu else torch.float32
    close = 2e-2 if on_gpu else 1e-4
    side = 128 if on_gpu else 32

    def drawn(*size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.randn(size, device=device).to(dtype)

    x, y = drawn(side, side), drawn(side, side)
    w, b = drawn(side), drawn(side)
    yield Call("add_one", add_one, lambda x: x + 1, (x,))
    yield Call("vector_add", vector_add, torch.add, (x, y))
    yield Call("saxpy", lambda x, y: saxpy(2.0, x, y), _saxpy, (x, y))
    yield Call("transpose", transpose, lambda x: x.mT.contiguous(), (x,))
    yield Call("mean_abs", mean_abs, lambda x: x.abs().mean(), (x,))
    yield Call("sum_all", sum_all, torch.sum, (x,), 1e-4)
    yield Call("sum_squared", sum_squared, lambda x: x.square().sum(), (x,), 1e-4)
    yield Call("softmax", softmax, lambda x: torch.softmax(x, -1), (x,))
    shape = (side,)
    yield Call(
        "layer_norm",
        lambda x, w, b: layer_norm(x, shape, w, b),
        lambda x, w, b: F.layer_norm(x, shape, w, b),
        (x, w, b),
        1e-4,
    )
    yield Call(
        "layer_norm_relu",
        lambda x, w, b: layer_norm_relu(x, shape, w, b),
        lambda x, w, b: F.layer_norm(x, shape, w, b).relu(),
        (x, w, b),
        1e-4,
    )
    yield Call(
        "rms_norm",
        lambda x, w: rms_norm(x, shape, w),
        lambda x, w: F.rms_norm(x, shape, w),
        (x, w),
        1e-4,
    )
    yield Call("matmul", matmul, torch.matmul, (x, y), 1e-3)
    if on_gpu:
        yield Call("gemm", gemm, torch.matmul, (x.to(half), y.to(half)), 5e-2)
    yield Call("gelu", gelu, F.gelu, (x,))
    yield Call("add_relu", add_relu, lambda x, y: (x + y).relu(), (x, y))
    yield Call("mul_tanh", mul_tanh, lambda x, y: (x * y).tanh(), (x, y))
    yield Call("bias_gelu", bias_gelu, lambda x, b: F.gelu(x + b), (x, b), 1e-4)
    yield from _layers(x.to(half), y.to(half), b.to(half), close)
    yield from _experts(x.to(half), y.to(half), close)
    q, k, v = (drawn(2, 4, side, 64, dtype=half) for _ in range(3))
    yield Call("attention_score", attention_score, _weights, (q, k), close)
    yield Call(
        "flash_attention",
        lambda q, k, v: flash_attention(q, k, v, causal=True),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        (q, k, v),
        close,
    )
    new = drawn(2, 4, 1, 64, dtype=half)
    yield Call(
        "decode_attention",
        decode_attention,
        F.scaled_dot_product_attention,
        (new, k, v),
        close,
    )


def _layers(
    x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, close: float
) -> Iterator[Call]:
    """Yield layers with epilogues, of square weights."""
    yield Call(
        "linear_gelu",
        linear_gelu,
        lambda x, w, b: F.gelu(F.linear(x, w, b)),
        (x, w, b),
        10 * close,
    )
    yield Call(
        "gated_mlp",
        lambda x, w: gated_mlp(x, w / 8, w / 8, w / 8),
        lambda x, w: F.linear(F.silu(F.linear(x, w / 8)) * F.linear(x, w / 8), w / 8),
        (x, w),
        10 * close,
    )
    image = x.reshape(-1)[:512].view(1, 8, 8, 8)
    image = image.contiguous(memory_format=torch.channels_last)
    places = w.reshape(-1)[: 8 * 8 * 9].view(8, 8, 3, 3)
    yield Call(
        "conv2d_bias_act",
        lambda x, w, b: conv2d_bias_act(x, w, b, 1, 1, "relu"),
        lambda x, w, b: F.conv2d(x, w, b, padding=1).relu(),
        (image, places, b[:8]),
        10 * close,
    )


def _experts(x: torch.Tensor, w: torch.Tensor, close: float) -> Iterator[Call]:
    """Yield layers of which not all of the weight is read, or not in 16 bits."""
    side, k, experts = x.shape[1], 2, 4
    packed = pack(quantize(w, 32))
    restored = dequantize(quantize(w, 32), w.dtype)
    yield Call(
        "int4_linear",
        lambda x: int4_linear(x, packed),
        lambda x: F.linear(x, restored),
        (x,),
        10 * close,
    )
    offsets = torch.tensor([side // 4, side // 2], dtype=torch.int32, device=x.device)
    yield Call(
        "grouped_gemm",
        lambda x, w: grouped_gemm(x, w, offsets),
        lambda x, w: torch.cat(
            (x[: side // 4] @ w[0], x[side // 4 : side // 2] @ w[1],
             torch.zeros_like(x[side // 2 :]))
        ),
        (x, torch.stack((w, w.mT.contiguous())) / 4),
        10 * close,
    )  # fmt: skip

    def ours(x: Any, router: Any, gate_up: Any, down: Any) -> torch.Tensor:
        weights, chosen = route(F.linear(x, router), k)
        return moe_mlp(x, weights, chosen, gate_up / 8, down / 8)

    def there_and_back(x: Any, router: Any) -> torch.Tensor:
        weights, chosen = route(F.linear(x, router), k)
        moved = permute(x, chosen, experts)
        return unpermute(moved.x, moved.rows, weights)

    def peer(x: Any, router: Any, gate_up: Any, down: Any) -> torch.Tensor:
        # Of equal logits, which 16 bits often are, the first expert is chosen.
        logits = F.linear(x, router).float()
        shares, chosen = logits.sort(descending=True, stable=True)
        shares, chosen = shares[:, :k], chosen[:, :k]
        full = torch.zeros_like(logits).scatter(1, chosen, shares.softmax(-1))
        gate, up = torch.einsum("td,efd->tef", x, gate_up / 8).chunk(2, -1)
        y = torch.einsum("tef,edf->ted", F.silu(gate) * up, down / 8)
        return (y * full[..., None]).sum(1).to(x.dtype)

    router = w[:experts].contiguous()
    gate_up, down = w.expand(experts, -1, -1), w[:, : side // 2].expand(experts, -1, -1)
    given = (x, router, gate_up.contiguous(), down.contiguous())
    yield Call("moe", ours, peer, given, 10 * close)
    yield Call(
        "permute",
        there_and_back,
        lambda x, router: x + 0 * router.sum(),
        given[:2],
        close,
    )


def _weights(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1)


def _saxpy(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.add(y, x, alpha=2.0)
