"""A model in one file, which opens without being read."""

from __future__ import annotations

import json
import os
from dataclasses import asdict

import torch
from torch import nn

from solutions.int4 import Int4Linear, Packed, load_mmap
from solutions.int4 import save as save_tensors
from solutions.transformer.layer import Int4MLP
from solutions.transformer.model import Config, Model
from solutions.transformer.operations import Operations

_CONFIG = "config"


def save(path: str | os.PathLike[str], model: Model) -> None:
    """Write a model, compressed or not, to a file for ``load``.

    The file is chapter 13's: packed words, scales and zeros of compressed layers, other
    tensors as they are, each at the beginning of a page, with its checksum.

    Args:
        path: where to.
        model: on any device.
    """
    kept: dict[str, Packed | torch.Tensor] = {}
    packed = {n: m for n, m in model.named_modules() if isinstance(m, Int4Linear)}
    for name, module in packed.items():
        kept[name] = module.packed
    for name, tensor in model.state_dict().items():
        if name.rpartition(".")[0] not in packed:
            kept[name] = tensor
    text = json.dumps(asdict(model.config)).encode()
    kept[_CONFIG] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    save_tensors(path, kept)


def load(
    path: str | os.PathLike[str],
    operations: Operations | None = None,
    *,
    device: torch.device | str = "cpu",
    verify: bool = False,
) -> Model:
    """Open a model that ``save`` wrote.

    On the CPU its tensors *are* the file's pages: nothing is read before it is used,
    and processes that open one file share them.

    Args:
        path: of the file.
        operations: as for ``Model``.
        device: where the model is to be.
        verify: whether to read all of it, and compare checksums.

    Returns:
        The model, ready to generate.

    Raises:
        ValueError: a file of something else, or a damaged one.
    """
    kept = load_mmap(path, verify)
    if not isinstance(text := kept.pop(_CONFIG, None), torch.Tensor):
        raise ValueError(
            f"{path} holds tensors, and no model's sizes: write it with "
            "solutions.transformer.save."
        )
    config = Config(**json.loads(text.numpy().tobytes()))
    # Without memory of its own: each tensor is then put in its place.
    operations = operations or Operations.for_device(device)
    with torch.device("meta"):
        model = Model(config, operations)
    for name, value in kept.items():
        if isinstance(value, Packed):
            _place(model, name, value, torch.device(device))
    plain = {n: t.to(device) for n, t in kept.items() if isinstance(t, torch.Tensor)}
    model.load_state_dict(plain, strict=False, assign=True)
    left = [n for n, t in model.state_dict().items() if t.is_meta]
    if left:
        raise ValueError(f"{path} has no {', '.join(left)}; write it again.")
    return model.requires_grad_(False).eval()


def _place(model: Model, name: str, packed: Packed, device: torch.device) -> None:
    """Put a packed weight in its layer's place."""
    owner, _, last = name.rpartition(".")
    if last in ("both", "down") and owner.endswith("mlp"):
        above = model.get_submodule(owner.rpartition(".")[0])
        if not isinstance(above.mlp, Int4MLP):
            above.mlp = Int4MLP(nn.Identity(), nn.Identity())  # type: ignore[arg-type]
    parent = model.get_submodule(owner) if owner else model
    setattr(parent, last, Int4Linear(packed.to(device)))
