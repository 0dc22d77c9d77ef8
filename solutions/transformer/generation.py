"""Generate: one pass over the prompt, then a token a pass over the KV cache."""

from __future__ import annotations

from collections.abc import Callable

import torch

from solutions.transformer.cache import KVCache
from solutions.transformer.graphs import chosen
from solutions.transformer.model import Model

Told = Callable[[int], None]


@torch.inference_mode()
def generate(
    model: Model,
    prompt: torch.Tensor,
    new: int,
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    generator: torch.Generator | None = None,
    graph: bool | None = None,
    told: Told | None = None,
) -> torch.Tensor:
    """Continue prompts, all of a batch at once.

    Each token is computed once: the prompt in one pass, which fills the cache, and then
    one token of each sequence a pass.

    Args:
        model: trained or compressed.
        prompt: int64 (batch, length), on the model's device; prompts of one length.
        new: tokens to add.
        temperature: 0 takes the likeliest; else logits are divided by it, and drawn.
        top_k: draw among so many of the likeliest.
        generator: what is drawn comes from it, on the model's device.
        graph: whether to replay the pass of a token as one CUDA graph; wherever one
            can be captured, when absent.
        told: is called with how many tokens are there.

    Returns:
        int64 (batch, length + new).

    Raises:
        ValueError: an empty prompt, more tokens than the model's longest sequence, or a
            graph of what cannot be captured.

    Cost: a pass a token, which reads every weight and the cache once.
    """
    batch, length = _check(model, prompt, new)
    graph = _chosen(graph, model, prompt)
    if not new:
        return prompt
    cache = model.new_cache(batch, length + new)
    out = torch.empty(batch, length + new, dtype=torch.int64, device=prompt.device)
    out[:, :length] = prompt

    def choose(logits: torch.Tensor) -> torch.Tensor:
        return choose_token(logits, temperature, top_k, generator)

    token = choose(model.head(model.hidden(prompt, cache)[:, -1]))
    out[:, length] = token
    step = Step(model, cache, choose, token, generator) if graph and new > 1 else None
    for index in range(length + 1, length + new):
        if step is not None:
            token = step()
        else:
            token = choose(model(token[:, None], cache)[:, -1])
        out[:, index] = token
        if told is not None:
            told(index + 1 - length)
    return out


def choose_token(
    logits: torch.Tensor, temperature: float = 0.0, top_k: int | None = None,
    generator: torch.Generator | None = None,
) -> torch.Tensor:  # fmt: skip
    """Choose a token for each row of logits, (batch, vocabulary)."""
    if temperature == 0.0:
        return logits.argmax(-1)
    scaled = logits.float() / temperature
    if top_k is not None and top_k < scaled.shape[-1]:
        least = scaled.topk(top_k).values[:, -1:]
        scaled = scaled.masked_fill(scaled < least, -torch.inf)
    # The largest of logits with Gumbel's noise is drawn as softmax would draw it, and
    # unlike torch.multinomial nothing of it asks the host.
    noise = torch.empty_like(scaled).exponential_(generator=generator)
    return (scaled - noise.log()).argmax(-1)


class Step:
    """The pass of one token as a CUDA graph: hundreds of kernels, one launch.

    Args:
        model: whose pass it is.
        cache: filled with the prompt; lies where the graph was captured.
        choose: a token from logits.
        token: int64 (batch,): the newest one, which the graph replaces.
        generator: what ``choose`` draws from.
    """

    def __init__(
        self, model: Model, cache: KVCache,
        choose: Callable[[torch.Tensor], torch.Tensor], token: torch.Tensor,
        generator: torch.Generator | None = None,
    ) -> None:  # fmt: skip
        self.cache, self.token = cache, token.clone()
        length = cache.length
        given = generator
        if generator is None:
            generator = torch.cuda.default_generators[token.device.index or 0]

        def run() -> None:
            self.token.copy_(choose(model(self.token[:, None], cache)[:, -1]))

        # A warm-up compiles what is not yet; its draws and its token are undone.
        state = generator.get_state()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                run()
                self._restore(token, length)
        torch.cuda.current_stream().wait_stream(stream)
        generator.set_state(state)
        self.graph = torch.cuda.CUDAGraph()
        if given is not None:  # torch's own one is known to every graph
            self.graph.register_generator_state(given)
        with torch.cuda.graph(self.graph):
            run()
        # Capturing runs nothing on the device, but it counted on the host.
        cache.length = length
        generator.set_state(state)

    def _restore(self, token: torch.Tensor, length: int) -> None:
        self.token.copy_(token)
        self.cache.advance(length - self.cache.length)

    def __call__(self) -> torch.Tensor:
        """Run the pass, and return the token of each sequence."""
        self.graph.replay()
        self.cache.length += 1
        return self.token


def _chosen(graph: bool | None, model: Model, prompt: torch.Tensor) -> bool:
    """Say whether a pass is captured: its shapes may not depend on its values."""
    hindrances = {
        "the model is on the CPU": not prompt.is_cuda,
        "which experts get how many tokens is asked by the host": model.config.experts,
        "torch's attention takes the cache's length from the host; "
        "model.use(Operations.of(['decode'])) reads it on the GPU": (
            model.operations.decode != "ours"
        ),
    }
    return chosen("generate", graph, hindrances)


def _check(model: Model, prompt: torch.Tensor, new: int) -> tuple[int, int]:
    if prompt.dim() != 2 or not prompt.shape[1]:
        raise ValueError(
            f"generate: the prompt has shape {tuple(prompt.shape)}; wanted (batch, "
            "length) with a token at least: tokenizer.encode(text)[None]."
        )
    batch, length = prompt.shape
    if new < 0 or length + new > model.config.max_len:
        raise ValueError(
            f"generate: {length} tokens and {new} more; the model's longest sequence "
            f"is {model.config.max_len}."
        )
    return batch, length
