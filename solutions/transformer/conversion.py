"""Swap the layers of a model that exists for the course's, and say what is left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from solutions.epilogue import gated_mlp
from solutions.flash_attention import FlashAttention, flash_attention
from solutions.layernorm import LayerNorm, RMSNorm

HUGGING_FACE = "kernelwright"
"""Name of our attention among those that a Hugging Face model can be told."""


@dataclass
class Converted:
    """What ``convert`` did.

    Attributes:
        swapped: names of modules that are ours now, by their former class.
        left: names of modules with parameters of their own that are not, by class.
    """

    swapped: dict[str, list[str]] = field(default_factory=dict)
    left: dict[str, list[str]] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [
            f"{verb} {len(names)} {kind}"
            for verb, found in (("swapped", self.swapped), ("left", self.left))
            for kind, names in sorted(found.items())
        ]
        return "\n".join(lines)


class _Gated(nn.Module):
    """A Llama's MLP: its own parameters, chapter 12's product."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        for name in ("gate_proj", "up_proj", "down_proj"):
            setattr(self, name, getattr(module, name))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the layer's result."""
        weights = (self.gate_proj.weight, self.up_proj.weight, self.down_proj.weight)
        return gated_mlp(x, *weights)


def convert(model: nn.Module) -> Converted:
    """Swap a model's layers for ours where they are the same function.

    ``nn.LayerNorm`` and ``nn.RMSNorm``; ``nn.MultiheadAttention`` as
    ``nn.TransformerEncoderLayer`` and other self-attention use it; of a Hugging Face
    Llama its norms, its gated MLPs, and its attention, by the interface that
    ``transformers`` has for that. Parameters are the same objects as before: an
    optimizer that has them keeps them.

    Args:
        model: is changed where it is.

    Returns:
        What was swapped, and what was left.

    Cost: nothing is copied.
    """
    found = Converted()
    for name, module in list(model.named_modules()):
        if (made := _ours(model, name, module)) is not None:
            owner, _, last = name.rpartition(".")
            setattr(model.get_submodule(owner) if owner else model, last, made)
            made.train(module.training)
            found.swapped.setdefault(type(module).__name__, []).append(name)
    if _attend_by_interface(model):
        names = [n for n, m in model.named_modules() if _is_llama_attention(m)]
        found.swapped["LlamaAttention"] = names
    done = [name for names in found.swapped.values() for name in names]
    for name, module in model.named_modules():
        inside = any(name == one or name.startswith(one + ".") for one in done)
        if not inside and next(module.parameters(recurse=False), None) is not None:
            found.left.setdefault(type(module).__name__, []).append(name)
    return found


def _ours(model: nn.Module, name: str, module: nn.Module) -> nn.Module | None:
    """Return what takes a module's place, with its parameters, or nothing."""
    if not name:
        return None
    made: nn.Module
    if type(module) is nn.LayerNorm:
        made = LayerNorm(module.normalized_shape, module.eps, device="meta")
    elif type(module) is nn.RMSNorm:
        made = RMSNorm(module.normalized_shape, module.eps, device="meta")
    elif _is_llama_norm(module):
        made = RMSNorm(module.weight.shape, module.variance_epsilon, device="meta")
    elif _is_llama_mlp(module):
        return _Gated(module)
    elif type(module) is nn.MultiheadAttention and _is_plain_self_attention(module):
        made = FlashAttention(
            module.embed_dim, module.num_heads, module.dropout,
            module.in_proj_bias is not None, batch_first=module.batch_first,
            device="meta",
        )  # fmt: skip
        made._qkv_same_embed_dim = True  # type: ignore[assignment]  # an encoder asks
        _leave_fast_path(model, name)
    else:
        return None
    for key, parameter in module.named_parameters():
        owner, _, last = key.rpartition(".")
        made.get_submodule(owner).register_parameter(last, parameter)
    for key in [k for k, p in made.named_parameters() if p.is_meta]:
        made.register_parameter(key, None)
    return made


def _is_llama_norm(module: nn.Module) -> bool:
    return type(module).__name__ == "LlamaRMSNorm"


def _is_llama_attention(module: nn.Module) -> bool:
    return type(module).__name__ == "LlamaAttention"


def _is_llama_mlp(module: nn.Module) -> bool:
    if type(module).__name__ != "LlamaMLP":
        return False
    plain = all(m.bias is None for m in module.children() if isinstance(m, nn.Linear))
    return plain and type(module.act_fn).__name__ in ("SiLU", "SiLUActivation")


def _is_plain_self_attention(module: nn.MultiheadAttention) -> bool:
    """Say whether FlashAttention has all that the module does."""
    return bool(
        module._qkv_same_embed_dim
        and module.bias_k is None
        and not module.add_zero_attn
        and module.head_dim <= 256
    )


def _leave_fast_path(model: nn.Module, name: str) -> None:
    """Keep an encoder layer from its fused inference path, which bypasses modules.

    ``nn.TransformerEncoderLayer`` calls one C++ function with its parameters while it
    evaluates. It does so for ReLU and GELU only, which it knows by a number.
    """
    owner = model.get_submodule(name.rpartition(".")[0])
    if isinstance(owner, nn.TransformerEncoderLayer):
        owner.activation_relu_or_gelu = 0
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoder):
            module.enable_nested_tensor = False


def _attend_by_interface(model: nn.Module) -> bool:
    """Tell a Hugging Face Llama to attend by ours; say whether it is one."""
    if not any(map(_is_llama_attention, model.modules())):
        return False
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    AttentionInterface.register(HUGGING_FACE, _attend)
    AttentionMaskInterface.register(HUGGING_FACE, sdpa_mask)
    setter: Callable[[str], Any] = model.set_attn_implementation
    setter(HUGGING_FACE)
    return True


def _attend(
    module: nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
    attention_mask: torch.Tensor | None, scaling: float | None = None,
    dropout: float = 0.0, is_causal: bool | None = None, **_: Any,
) -> tuple[torch.Tensor, None]:  # fmt: skip
    """Attend as ``transformers`` asks: (batch, length, heads, head_dim), no weights."""
    if is_causal is None:
        is_causal = bool(getattr(module, "is_causal", True))
    # One new token sees all that is in the cache.
    causal = is_causal and attention_mask is None and query.shape[2] > 1
    out = flash_attention(
        query, key, value, mask=attention_mask, scale=scaling, dropout_p=dropout,
        causal="bottom-right" if causal else False,
    )  # fmt: skip
    return out.transpose(1, 2).contiguous(), None
