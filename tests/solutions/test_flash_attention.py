"""solutions.flash_attention: every option against float64, and what is refused."""

from __future__ import annotations

import pytest
import torch

from solutions.flash_attention import FlashAttention, flash_attention
from solutions.flash_attention.plain import attend_plain
from solutions.flash_attention.reference import attention_reference, attention_tile
from tests.solutions.attention_cases import (
    NAMES,
    SDPA,
    draw,
    options_for,
)


def test_plain_agrees_with_torch() -> None:
    for shape in ((7, 7), (9, 23), (23, 9)):
        q, k, v = draw(*shape)
        i, j = torch.arange(shape[0])[:, None], torch.arange(shape[1])
        late = i + shape[1] - shape[0]
        masks = {
            "plain": None,
            "causal": j <= i,
            "scale": None,
            "mask": options_for(*shape)["mask"]["mask"],
            "added": options_for(*shape)["added"]["mask"].double(),
            "window": (j >= i - 5) & (j <= i + 3),
            "causal window": (j >= i - 7) & (j <= i),
            "bottom-right": j <= late,
        }
        for name, mask in masks.items():
            told = options_for(*shape)[name]
            wanted = SDPA(q, k, v, attn_mask=mask, scale=told.get("scale"))
            # torch's answer for a row that sees nothing differs by version.
            if mask is not None and mask.dtype == torch.bool:
                some = mask.any(-1, keepdim=True)
                wanted = torch.where(some, wanted, 0.0)
            torch.testing.assert_close(flash_attention(q, k, v, **told), wanted)


def test_grouped_heads() -> None:
    q, k, v = draw(6, 8, heads=(6, 2))
    wanted = SDPA(q, k.repeat_interleave(3, 1), v.repeat_interleave(3, 1))
    torch.testing.assert_close(flash_attention(q, k, v), wanted)


@pytest.mark.parametrize("name", ["plain", "causal", "mask", "padding", "all"])
def test_gradients_of_plain(name: str) -> None:
    q, k, v = (t.requires_grad_() for t in draw(4, 6, 3, (2, 1)))
    told = options_for(4, 6)[name]
    assert torch.autograd.gradcheck(
        lambda *heads: flash_attention(*heads, **told), (q, k, v)
    )


def test_dropout_keeps_the_mean_and_replays() -> None:
    q, k, v = draw(40, 50)
    first = flash_attention(q, k, v, dropout_p=0.4, seed=1)
    torch.testing.assert_close(
        first, flash_attention(q, k, v, dropout_p=0.4, seed=1), rtol=0, atol=0
    )
    assert not torch.equal(first, flash_attention(q, k, v, dropout_p=0.4, seed=2))
    torch.manual_seed(8)
    drawn = flash_attention(q, k, v, dropout_p=0.4)
    torch.manual_seed(8)
    torch.testing.assert_close(drawn, flash_attention(q, k, v, dropout_p=0.4))
    ones = torch.ones_like(v)
    assert abs(flash_attention(q, k, ones, dropout_p=0.4, seed=3).mean() - 1) < 0.05


def test_the_two_references() -> None:
    q, k, v = (t[0] for t in draw(13, 29))
    seen = torch.ones(13, 29, dtype=torch.bool).tril(10)
    seen[4] = False
    got = attention_reference(q, k, v, seen)
    wanted = flash_attention(q[None], k[None], v[None], mask=seen)[0]
    torch.testing.assert_close(got, wanted)
    assert not got[:, 4].any()
    for tile in (1, 8, 29, 64):
        wanted = SDPA(q, k, v)
        torch.testing.assert_close(attention_tile(q, k, v, tile), wanted)


# --- the public function over Triton's kernels --------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_option_through_triton(name: str) -> None:
    q, k, v = (
        t.requires_grad_() for t in draw(21, 37, 32, (2, 1), dtype=torch.float32)
    )
    told = options_for(21, 37)[name]
    wide = [t.detach().double().requires_grad_() for t in (q, k, v)]
    got = flash_attention(q, k, v, **told, kernel="triton")
    wanted = flash_attention(*wide, **told)
    torch.testing.assert_close(got.double(), wanted, atol=2e-5, rtol=1e-4)
    grad = torch.randn(got.shape, generator=torch.Generator().manual_seed(1))
    got.backward(grad)
    wanted.backward(grad.double())
    for own, other in zip((q, k, v), wide, strict=True):
        assert torch.isfinite(own.grad).all()
        torch.testing.assert_close(own.grad.double(), other.grad, atol=5e-5, rtol=1e-3)


# --- what is refused ----------------------------------------------------------------


def test_wrong_input_is_refused_with_its_mend() -> None:
    q, k, v = draw(4, 4, dtype=torch.float32)
    with pytest.raises(ValueError, match="no kernel 'fast'"):
        flash_attention(q, k, v, kernel="fast")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="q is list"):
        flash_attention([1.0], k, v)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"wanted \(batch, heads, length, head_dim\)"):
        flash_attention(q[0], k, v)
    with pytest.raises(ValueError, match="takes fp16 or bf16 heads of 64 or 128"):
        flash_attention(q, k, v, kernel="mma")
    with pytest.raises(ValueError, match="takes no mask"):
        flash_attention(q, k, v, window=3, kernel="forward")
    with pytest.raises(ValueError, match="is not causal"):
        flash_attention(q, k, v, causal=True, kernel="forward")
    with pytest.raises(ValueError, match="is causal"):
        flash_attention(q, k, v, kernel="causal")
    with pytest.raises(ValueError, match="as many heads of k as of q"):
        flash_attention(q, k[:, :2], v[:, :2], kernel="forward")
    with pytest.raises(ValueError, match="has no float64"):
        flash_attention(*draw(4, 4), kernel="triton")
    with pytest.raises(ValueError, match="keeps nothing for a backward"):
        flash_attention(q.requires_grad_(), k, v, kernel="forward")
    with pytest.raises(ValueError, match="a multiple of num_heads"):
        FlashAttention(10, 3)
    layer, x = FlashAttention(8, 2), torch.randn(3, 1, 8)
    with pytest.raises(ValueError, match="need_weights=False"):
        layer(x, need_weights=True)
    with pytest.raises(ValueError, match="is self-attention"):
        layer(x, x + 1, x + 1)
    with pytest.raises(ValueError, match="query has shape"):
        layer(torch.randn(3, 1, 9))


def test_nothing_to_do() -> None:
    for q_len, kv_len in ((0, 3), (3, 0), (0, 0)):
        q, k, v = draw(q_len, kv_len, dtype=torch.float16)
        for kernel in (None, "mma"):
            out = flash_attention(q, k, v, kernel=kernel)  # type: ignore[arg-type]
            assert out.shape == q.shape and not out.any()


def test_autocast_casts_as_torchs_attention_does() -> None:
    q, k, v = draw(8, 8, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert flash_attention(q, k, v).dtype == torch.bfloat16


def test_plain_says_what_it_costs() -> None:
    assert "stands in" in (attend_plain.__doc__ or "")
    assert "plain torch stands in" in (flash_attention.__doc__ or "")
