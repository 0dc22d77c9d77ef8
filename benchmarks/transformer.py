"""A whole transformer beside torch: ``python -m benchmarks.transformer``.

    python -m benchmarks.transformer --check         # exit 1 below a device's floor
    python -m benchmarks.transformer --only-correct  # no timing; also without a GPU
    python -m benchmarks.transformer --out FOLDER    # not into benchmarks/results

A training step is forward, backward, clipping and AdamW, of one model with one batch;
its peers take every operation from torch, with scaled_dot_product_attention, eager or
compiled, and the same optimizer. ``…_graph`` is a step replayed as one CUDA graph, as
``train`` does it; ``swap_…``, replayed too, has one operation of ours for torch's.
Memory is all that torch holds at the peak of a step that is not replayed, weights and
moments among it.

A layer's *standard form* is what the fourth of the systems that the course measures
itself by compares with: attention with its matrix of scores, and every norm and
activation as its formula's operations, eager. Generation is one token after 2,047: a
CUDA graph each, and the peer's pass compiled before it is captured. Bytes are those of
the weights that a token reads.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F

import kernelwright as kw
from benchmarks import _command, _peers
from benchmarks._candidates import Candidate, Row
from solutions.transformer import (
    Config,
    Model,
    Operations,
    TransformerLayer,
    compress,
    generate,
    train,
    train_step,
    weight_bytes,
)
from solutions.transformer.operations import NAMES
from solutions.transformer.training import Step, make_optimizer

DTYPE = torch.bfloat16
ROUNDS, SECONDS = 5, 0.15
TOKENS, LONGER, CONTEXT = 4096, 8192, 2048
TRAINED = Config(
    32_000, d_model=1024, layers=12, heads=16, kv_heads=16, d_ff=2816, max_len=TOKENS
)
GENERATES = Config(
    32_000, d_model=2048, layers=24, heads=16, kv_heads=16, d_ff=5504, max_len=CONTEXT
)
"""1.35 billion parameters."""
SMALL = Config(96, d_model=64, layers=2, heads=4, kv_heads=2, d_ff=96, max_len=64)
LAYER = {"d_model": 1024, "heads": 16, "d_ff": 4096}

# Lowest ratio to the peer that is no regression, by device.
FLOORS: dict[str, dict[str, float]] = {
    "nvidia-h200": {
        "step_graph": 1.35,
        "layer_ours": 3.84,
        "token_bf16": 1.85,
        "token_int4": 3.4,
        "token_int4_head": 3.4,
    }
}


def main() -> int:
    """Check, measure, store; return 0 if all is right and above its floor."""
    options = _command.command_line(__doc__).parse_args()
    return _command.run("transformer", options, check_values, measured, FLOORS)


def measured(options: argparse.Namespace) -> _command.Measured:
    """Time training, a layer, and a token."""
    rows: list[Row] = []
    for group in (steps, longer, swaps, layers, decoding):
        todo = list(group())
        found = _peers.beside(todo, ROUNDS, SECONDS)
        if group is steps:
            _peers.compare_with_torch(found)
        stepped = [one for one in todo if hasattr(one.run, "once")]
        # What a graph keeps is its own; a swap's memory is that of the step it replays.
        stepped = [one for one in stepped if not one.name.endswith("_graph")]
        peaks = {one.name: peak_of(one.run) for one in stepped}
        for row in found:
            if row["name"] in peaks:
                row["peak_bytes"] = peaks[row["name"]]
                row["memory"] = peaks[row["name"]] / peaks[row["peer"]]
        rows += found
        # The models of a group, before the next one's come.
        del todo
        gc.collect()
        torch.cuda.empty_cache()
        yield rows, {}


def check_values(device: str) -> None:
    """Hold losses and tokens against plain torch's, in fp32."""
    tokens = torch.randint(96, (2000,), generator=torch.Generator().manual_seed(0))
    ours = Operations.ours() if device == "cuda" else Operations.of(("mlp", "loss"))
    found = []
    for operations in (Operations.plain(), ours):
        torch.manual_seed(1)
        model = Model(SMALL, operations, device=device)
        losses = train(model, tokens, steps=10, batch=4, length=24)
        found.append((losses, generate(model, tokens[None, :9].to(device), 20)))
    (wanted, _), (got, same) = found
    error = max(abs(a - b) / b for a, b in zip(got, wanted, strict=True))
    assert error < 1e-4, f"losses are apart by {error:.1e} of themselves"
    print(f"right on {device}: losses apart by {error:.1e}")
    # Models whose losses are apart by rounding may choose otherwise where two tokens
    # are as likely: the tokens of one model are compared.
    again = generate(model.use(Operations.plain()), tokens[None, :9].to(device), 20)
    assert torch.equal(again, same), "generated tokens differ from plain torch's"
    print(f"right on {device}: 20 tokens generated")


# --- training -----------------------------------------------------------------------


def steps() -> Iterator[Candidate]:
    """Name a training step: torch's, and ours."""
    for suffix, label, operations, attention in (
        ("_eager", "torch eager, SDPA", Operations.plain(), None),
        ("_compile", "torch.compile, SDPA", Operations.plain(), None),
        ("_matrix", "torch eager, all scores in memory", Operations.plain(), _matrix),
        ("", "every operation ours", Operations.ours(), None),
        ("_ours_compile", "ours, the rest compiled", Operations.ours(), None),
        ("_graph", "ours, one CUDA graph", Operations.ours(), None),
        ("_compile_graph", "torch.compile, one CUDA graph", Operations.plain(), None),
    ):
        yield _step(
            f"step{suffix}", label, operations, "step_eager",
            compiled="compile" in suffix, attention=attention,
            graph="graph" in suffix,
        )  # fmt: skip


def longer() -> Iterator[Candidate]:
    """Name a step with twice the tokens, where scores in memory are four times."""
    how: Any = {"peer": "step_longer_matrix", "tokens": LONGER}
    yield _step(
        "step_longer_matrix", "torch eager, all scores in memory", Operations.plain(),
        attention=_matrix, **how,
    )  # fmt: skip
    yield _step("step_longer", "every operation ours", Operations.ours(), **how)


def swaps() -> Iterator[Candidate]:
    """Name the step of torch's operations with one exchanged."""
    for name in ("none", *NAMES):
        if name != "decode":
            some = Operations.of([name]) if name != "none" else Operations.plain()
            step = _step(f"swap_{name}", name, some, "swap_none", graph=True)
            yield replace(step, label=name)


def _step(
    name: str,
    label: str,
    operations: Operations,
    peer: str,
    *,
    compiled: bool = False,
    attention: Callable[..., torch.Tensor] | None = None,
    graph: bool = False,
    tokens: int = TOKENS,
) -> Candidate:
    """Name the training step of a model that is made for it."""
    torch.manual_seed(0)
    config = replace(TRAINED, max_len=tokens)
    model = Model(config, operations, device="cuda", dtype=DTYPE)
    for layer in model.layers:
        if attention is not None:
            layer.attention._full = attention
    if compiled:
        model.loss = _peers.compiled(model.loss)  # type: ignore[method-assign]
    pieces = torch.randint(config.vocabulary, (1, tokens + 1), device="cuda")
    return Candidate(
        name, f"{config.layers} layers, {tokens:,} tokens: {label}",
        _Trained(model, pieces, graph),
        dtype="bfloat16", flops=_flops(config, tokens), peers=(peer,),
    )  # fmt: skip


class _Trained:
    """A step of training, and what is in memory before it."""

    def __init__(self, model: Model, pieces: torch.Tensor, graph: bool) -> None:
        self.model, self.pieces = model, pieces
        self.optimizer = make_optimizer(model, 1e-4, graph=graph)
        self.replay = Step(model, self.optimizer) if graph else None
        for _ in range(Step.WARM_UPS + 1 if graph else 0):
            self()

    def __call__(self) -> torch.Tensor:
        return self.replay(self.pieces) if self.replay else self.once()

    def once(self) -> torch.Tensor:
        """Take a step by its launches, one by one."""
        return train_step(self.model, self.optimizer, self.pieces)

    def held(self) -> Iterator[torch.Tensor]:
        """Give parameters, gradients and moments."""
        for parameter in self.model.parameters():
            yield parameter
            if parameter.grad is not None:
                yield parameter.grad
        for state in self.optimizer.state.values():
            yield from (t for t in state.values() if isinstance(t, torch.Tensor))


def peak_of(run: Any) -> int:
    """Return the most bytes that are in memory in a run, with what it began with."""
    held = sum(tensor.nbytes for tensor in run.held())
    return held + kw.peak_memory(run.once).peak_bytes


def _flops(config: Config, tokens: int) -> float:
    """Return what a step must compute: forward, and twice that backward."""
    width, layers = config.d_model, config.layers
    matrices = layers * (4 * width**2 + 3 * width * config.d_ff)
    matrices += width * config.vocabulary
    # Half of the scores are behind the mask.
    scores = layers * 2 * tokens * width
    return 3.0 * 2 * tokens * (matrices + scores / 2)


def _matrix(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Attend with the matrix of scores in memory."""
    scores = q @ k.mT / q.shape[-1] ** 0.5
    later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    return scores.masked_fill(later, -torch.inf).softmax(-1) @ v


# --- a layer ------------------------------------------------------------------------


def layers() -> Iterator[Candidate]:
    """Name a layer there and back: its standard form, torch's fused ones, ours."""
    for suffix, label, operations, standard in (
        ("standard", "standard form", Operations.plain(), True),
        ("eager", "torch eager, SDPA", Operations.plain(), False),
        ("ours", "ours", Operations.ours(), False),
    ):
        how: Any = {**LAYER, "device": "cuda", "dtype": DTYPE}
        layer = TransformerLayer(**how, operations=operations)
        if standard:
            layer.attention._full = _matrix  # type: ignore[method-assign]
            for norm in (layer.norm_attention, layer.norm_mlp):
                norm.forward = _norm_of(norm)  # type: ignore[method-assign]
            layer.mlp.forward = _mlp_of(layer.mlp)  # type: ignore[method-assign]
        x = torch.randn(4, 2048, 1024, device="cuda").to(DTYPE).requires_grad_()
        slope = torch.randn_like(x)
        tokens, width = x.shape[0] * x.shape[1], LAYER["d_model"]
        matrices = 4 * width**2 + 3 * width * LAYER["d_ff"]
        yield Candidate(
            f"layer_{suffix}", f"a layer, 4 x 2,048 tokens: {label}",
            _BothWays(layer, x, slope), dtype="bfloat16",
            flops=6.0 * tokens * (matrices + x.shape[1] * width),
            peers=("layer_standard",),
        )  # fmt: skip


class _BothWays:
    """A layer there and back, and what is in memory before."""

    def __init__(self, layer: Any, x: torch.Tensor, slope: torch.Tensor) -> None:
        self.layer, self.slope = layer, slope
        self.given = (x, *layer.parameters())

    def __call__(self) -> Any:
        return torch.autograd.grad(self.layer(self.given[0]), self.given, self.slope)

    once = __call__

    def held(self) -> Iterator[torch.Tensor]:
        """Give the layer's parameters, its input and the gradient of its result."""
        yield from (*self.given, self.slope)


def _norm_of(norm: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    def forward(x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        wide = wide / torch.sqrt(wide.pow(2).mean(-1, keepdim=True) + norm.eps)
        return wide.to(x.dtype) * norm.weight

    return forward


def _mlp_of(mlp: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    def forward(x: torch.Tensor) -> torch.Tensor:
        gate = mlp.gate(x)
        out: torch.Tensor = mlp.down(gate * torch.sigmoid(gate) * mlp.up(x))
        return out

    return forward


# --- generation ---------------------------------------------------------------------


def decoding() -> Iterator[Candidate]:
    """Name the pass of one token: torch's, ours, and ours with four bits."""
    torch.manual_seed(0)
    model = Model(GENERATES, Operations.plain(), device="cuda", dtype=DTYPE)
    plain = _peers.compiled(plain_pass)
    rotated = rotations(CONTEXT - 1, model)
    cache = model.new_cache(1, CONTEXT)

    def peer(token: torch.Tensor) -> torch.Tensor:
        return plain(model, token, cache.keys, cache.values, rotated)

    yield _token("bf16_compile", "bf16, torch.compile", model, captured(peer))
    ours = compress(model, 128).use(Operations.ours())
    whole = compress(model, 128, head=True).use(Operations.ours())
    same = Model(GENERATES, Operations.ours(), device="meta")
    same.load_state_dict(model.state_dict(), assign=True)
    for name, label, one in (
        ("bf16", "bf16, ours", same),
        ("int4", "INT4, head bf16", ours),
        ("int4_head", "INT4, head too", whole),
    ):
        yield _token(name, label, one, captured(_own_pass(one)))


def _own_pass(model: Model) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a pass of our model at the cache's last position, again and again."""
    cache = model.new_cache(1, CONTEXT)

    def run(token: torch.Tensor) -> torch.Tensor:
        cache.length = CONTEXT - 1
        cache.lengths.fill_(CONTEXT - 1)
        return model(token[:, None], cache)[:, -1].argmax(-1)

    return run


def plain_pass(
    model: Model, token: torch.Tensor, keys: torch.Tensor, values: torch.Tensor,
    rotated: tuple[torch.Tensor, torch.Tensor],
) -> torch.Tensor:  # fmt: skip
    """Compute the token after a full cache with torch's operations, for torch.compile.

    The cache has CONTEXT places, the last of which is the token's own; no mask is
    needed, which makes this a faster peer than one that has to ask for the length.
    """
    config, cosine, sine = model.config, *rotated
    heads, size = config.heads, config.d_model // config.heads
    x = model.embedding(token)
    for index, layer in enumerate(model.layers):
        h = F.rms_norm(x, x.shape[1:], layer.norm_attention.weight, config.eps)
        joined = F.linear(h, layer.attention.joined.weight).view(-1, size)
        q, k, v = joined.split((heads, config.kv_heads, config.kv_heads))
        q, k = (
            torch.cat((a * cosine - b * sine, b * cosine + a * sine), -1)
            for a, b in (t.chunk(2, -1) for t in (q, k))
        )
        keys[index, 0, :, -1], values[index, 0, :, -1] = k, v
        seen = F.scaled_dot_product_attention(
            q[None, :, None], keys[index], values[index]
        )
        x = x + F.linear(seen.reshape(1, -1), layer.attention.out.weight)
        h = F.rms_norm(x, x.shape[1:], layer.norm_mlp.weight, config.eps)
        x = x + layer.mlp(h)
    h = F.rms_norm(x, x.shape[1:], model.norm.weight, config.eps)
    return model.head(h).argmax(-1)  # type: ignore[no-any-return]


def rotations(place: int, model: Model) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cosines and sines of one position, as the model's tables have them."""
    from solutions.transformer.rotary import tables

    config = model.config
    size = config.d_model // config.heads
    both = tables(config.max_len, size, config.base, model.device)
    cosine, sine = (t[place].to(DTYPE) for t in both)
    return cosine, sine


def captured(run: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[], Any]:
    """Return the replay of a pass as a CUDA graph."""
    token = torch.ones(1, dtype=torch.int64, device="cuda")
    with torch.inference_mode():
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                run(token)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            made = run(token)

    def replay() -> torch.Tensor:
        graph.replay()
        return made

    return replay


def _token(name: str, label: str, model: Model, run: Callable[[], Any]) -> Candidate:
    """Name a pass; the embedding's one row is none of what it reads."""
    read = weight_bytes(model) - model.embedding.weight.nbytes
    return Candidate(
        f"token_{name}", f"1.35 B parameters, 2K context: {label}", run, (), read,
        "bfloat16", peers=("token_bf16_compile",), facts={"weights_bytes": read},
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
