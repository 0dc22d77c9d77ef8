"""Generation: what a cache, a graph, a draft and a conversion may not change."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest
import torch
from torch import nn

from solutions.transformer import (
    Config,
    Model,
    Operations,
    compress,
    convert,
    drop_ins,
    generate,
    generate_speculative,
)
from solutions.transformer.decoding import add_norm, launch_gate
from solutions.transformer.generation import choose_token

SIZES = Config(
    vocabulary=96, d_model=32, layers=2, heads=4, kv_heads=2, d_ff=48, max_len=128
)


def model(operations: Operations | None = None, **how: object) -> Model:
    torch.manual_seed(1)
    made = Model(SIZES, operations, **how)  # type: ignore[arg-type]
    for parameter in made.parameters():  # else every token is the last one again
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.3)
    return made


def prompts(length: int, batch: int = 2) -> torch.Tensor:
    drawn = torch.Generator().manual_seed(2)
    return torch.randint(0, 96, (batch, length), generator=drawn)


@torch.no_grad()
def without_cache(found: Model, prompt: torch.Tensor, new: int) -> torch.Tensor:
    for _ in range(new):
        token = found(prompt)[:, -1].argmax(-1)
        prompt = torch.cat((prompt, token[:, None]), 1)
    return prompt


@pytest.mark.parametrize("length", [1, 7, 20])
def test_a_cache_changes_no_token(length: int) -> None:
    found = model()
    wanted = without_cache(found, prompts(length), 12)
    assert len(wanted[:, length:].unique()) > 3
    assert torch.equal(generate(found, prompts(length), 12), wanted)


def test_our_kernels_change_no_token() -> None:
    wanted = without_cache(model(), prompts(18), 3)
    assert torch.equal(generate(model(Operations.ours()), prompts(18), 3), wanted)


@pytest.mark.gpu
@pytest.mark.parametrize("graph", [False, True])
def test_our_kernels_change_no_token_on_a_gpu(graph: bool) -> None:
    plain = model(Operations.plain(), device="cuda")
    ours = model(Operations.ours(), device="cuda")
    ours.load_state_dict(plain.state_dict())
    prompt = prompts(20).cuda()
    wanted = without_cache(plain, prompt, 30)
    assert torch.equal(generate(ours, prompt, 30, graph=graph), wanted)


@pytest.mark.gpu
def test_torchs_attention_changes_no_token_on_a_gpu() -> None:
    plain = model(Operations.plain(), device="cuda")
    prompt = prompts(20).cuda()
    assert torch.equal(generate(plain, prompt, 30), without_cache(plain, prompt, 30))
    with pytest.raises(ValueError, match="length from the host"):
        generate(plain, prompt, 30, graph=True)


@pytest.mark.gpu
def test_a_graph_draws_what_passes_draw() -> None:
    found = model(Operations.ours(), device="cuda")
    drawn = []
    for graph in (False, True):
        generator = torch.Generator("cuda").manual_seed(3)
        how = {"temperature": 1.0, "generator": generator, "graph": graph}
        drawn.append(generate(found, prompts(9).cuda(), 20, **how))  # type: ignore[arg-type]
    assert torch.equal(*drawn)


def test_a_draft_changes_no_token() -> None:
    found = model()
    wanted = generate(found, prompts(5, 1), 40)
    same = generate_speculative(found, found, prompts(5, 1), 40)
    assert torch.equal(same.tokens, wanted)
    assert same.passes == 8 and same.accepted == 32
    four_bits = generate_speculative(found, compress(found, 16), prompts(5, 1), 40)
    assert torch.equal(four_bits.tokens, wanted)
    assert four_bits.passes + four_bits.accepted == 40


def test_tokens_are_drawn_as_softmax_says() -> None:
    logits = torch.tensor([0.0, 1.0, 2.0]).expand(20_000, 3)
    generator = torch.Generator().manual_seed(4)
    counts = choose_token(logits, 0.5, generator=generator).bincount() / 20_000
    wanted = (logits[0] / 0.5).softmax(-1)
    # Five deviations of a share that 20,000 draws estimate.
    assert ((counts - wanted).abs() < 5 * (wanted / 20_000).sqrt()).all()
    assert set(choose_token(logits, 1.0, 2, generator).tolist()) == {1, 2}


def test_the_sums_norm_is_the_norm_of_the_sum() -> None:
    x, y, weight = torch.randn(3, 24), torch.randn(3, 24), torch.randn(24)
    wanted = nn.functional.rms_norm(x + y, (24,), weight, 1e-5)
    total = x + y
    torch.testing.assert_close(add_norm(x, y, weight, 1e-5), wanted)
    assert torch.equal(x, total)


def test_the_gate_kernel_is_silu_times_up() -> None:
    both = torch.randn(3, 2 * 700)
    gate, up = both.chunk(2, -1)
    torch.testing.assert_close(launch_gate(both), nn.functional.silu(gate) * up)


def test_the_usage_example_runs_as_printed() -> None:
    said = drop_ins.__doc__ or ""
    example = textwrap.dedent(said.split("::\n")[1].split("\n\nThere")[0])
    if not torch.cuda.is_available():
        example = example.replace(".cuda()", "")
    names: dict[str, Any] = {"torch": torch, **vars(drop_ins)}
    exec(example, names)
    q, k, v = (names[name] for name in "qkv")
    plain = nn.functional.scaled_dot_product_attention(q[None], k[None], v[None])[0]
    torch.testing.assert_close(names["x"], plain)
    wanted = nn.functional.layer_norm(plain, (64,))
    torch.testing.assert_close(names["output"], wanted, rtol=1e-4, atol=1e-5)
    assert "inference" in str(names["profiler"].summary())


def test_a_sequence_is_attended_to_with_projections() -> None:
    ours = drop_ins.FlashAttention(64, 4, batch_first=True)
    theirs = nn.MultiheadAttention(64, 4, batch_first=True)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 7, 64)
    wanted = theirs(x, x, x, need_weights=False)[0]
    torch.testing.assert_close(ours(x, x, x)[0], wanted)


def test_torchs_encoder_is_converted() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.0)
    encoder = nn.TransformerEncoder(layer, 2).eval()
    x = torch.randn(2, 9, 32)
    padding = torch.zeros(2, 9, dtype=torch.bool)
    padding[1, 6:] = True
    kept = dict(encoder.named_parameters())
    wanted = encoder(x, src_key_padding_mask=padding)[~padding]
    found = convert(encoder)
    assert len(found.swapped["MultiheadAttention"]) == 2
    assert len(found.swapped["LayerNorm"]) == 4
    assert len(found.left["Linear"]) == 4 and "left 4 Linear" in str(found)
    got = encoder(x, src_key_padding_mask=padding)[~padding]
    torch.testing.assert_close(got, wanted)
    assert all(p is kept[n] for n, p in encoder.named_parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_hugging_face_llama_is_converted(dtype: torch.dtype) -> None:
    transformers = pytest.importorskip("transformers", exc_type=ImportError)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=96, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
    )  # fmt: skip
    llama = transformers.LlamaForCausalLM(config).eval()
    tokens = prompts(11)
    with torch.no_grad():
        exact = llama.double()(tokens).logits
        llama = llama.to(dtype)
        plain = llama(tokens).logits.double()
        found = convert(llama)
        got = llama(tokens).logits.double()
    assert {k: len(v) for k, v in found.swapped.items()} == {
        "LlamaRMSNorm": 5, "LlamaMLP": 2, "LlamaAttention": 2,
    }  # fmt: skip
    assert set(found.left) == {"Embedding", "Linear"}
    own = (plain - exact).abs().max()
    assert (got - exact).abs().max() <= 2 * own


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: generate(model(), prompts(0), 3), "with a token at least"),
        (lambda: generate(model(), prompts(5), 300), "longest sequence is 128"),
        (
            lambda: generate_speculative(model(), model(), prompts(5), 3),
            "2 sequences and 4 guesses",
        ),
    ],
)
def test_what_cannot_be_generated_is_refused(wrong, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message):
        wrong()
