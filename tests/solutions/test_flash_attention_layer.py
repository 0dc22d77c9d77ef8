"""The layer FlashAttention beside torch's MultiheadAttention."""

from __future__ import annotations

import pytest
import torch

from solutions.flash_attention import FlashAttention


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_the_layer_is_torchs(bias: bool, batch_first: bool) -> None:
    torch.manual_seed(0)
    peer = torch.nn.MultiheadAttention(24, 3, bias=bias, batch_first=batch_first)
    own = FlashAttention(24, 3, bias=bias, batch_first=batch_first)
    own.load_state_dict(peer.state_dict())
    x = torch.randn(5, 5, 24)
    padding = torch.zeros(5, 5, dtype=torch.bool)
    padding[:, 3:] = True
    hidden = torch.ones(5, 5, dtype=torch.bool).triu(1)
    for told in (
        {},
        {"key_padding_mask": padding},
        {"attn_mask": hidden},
        {"attn_mask": torch.randn(5, 5)},
        {"attn_mask": torch.randn(15, 5, 5), "key_padding_mask": padding.float()},
        {"attn_mask": hidden, "key_padding_mask": padding},
        {"attn_mask": hidden, "is_causal": True},
    ):
        wanted, _ = peer(x, x, x, need_weights=False, **told)
        got, weights = own(x, x, x, **told)
        assert weights is None
        torch.testing.assert_close(got, wanted, atol=1e-5, rtol=1e-5)
    causal, _ = own(x, is_causal=True)
    wanted, _ = own(x, attn_mask=hidden)
    torch.testing.assert_close(causal, wanted)
    alone, _ = own(x[0])
    torch.testing.assert_close(alone, peer(x[0], x[0], x[0], need_weights=False)[0])


def test_the_layer_begins_as_torchs_and_learns() -> None:
    torch.manual_seed(1)
    peer = torch.nn.MultiheadAttention(16, 2)
    torch.manual_seed(1)
    own = FlashAttention(16, 2, dropout=0.1)
    assert own.state_dict().keys() == peer.state_dict().keys()
    own(torch.randn(6, 2, 16))[0].square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in own.parameters())
    x = torch.randn(6, 2, 16)
    own.eval()
    torch.testing.assert_close(own(x)[0], own(x)[0])
    own.train()
    assert not torch.equal(own(x)[0], own(x)[0])
